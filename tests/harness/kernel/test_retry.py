"""Calling a model again: only for what passes by itself, and only while nothing was said."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import (
    Attempts,
    ErrorPolicy,
    ModelError,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
    Retry,
    tool,
)
from holdfast.models.port import ModelCall
from holdfast.models.scripted import Cut, Fail, Say, Use

from .scene import helper, only, script, serve, until

AWAY = ModelUnavailable(model="m/m", problem="away")


def flaky(*errors: Exception | Cut, then: Any = "ok") -> Any:
    """A model whose first calls go wrong."""
    left = list(errors)

    def step(call: ModelCall) -> Any:
        if not left:
            return then
        error = left.pop(0)
        return error if isinstance(error, Cut) else Fail(error)

    return script(step)


def policy(times: int, **options: Any) -> ErrorPolicy:
    return ErrorPolicy(retry=Retry(model=Attempts(times, **{"backoff": 0.0, **options})))


@pytest.mark.parity("harness-kernel", 131)
@pytest.mark.parametrize(
    "error",
    [
        AWAY,
        ModelTimeout(model="m/m", problem="late"),
        ModelRateLimited(model="m/m", problem="busy"),
        TimeoutError(),
        ConnectionResetError(),
        Cut(),
    ],
)
async def test_what_passes_is_tried_again(error: Any) -> None:
    model = flaky(error, error)
    async with serve(helper(), default_model=model, error_policy=policy(3)) as harness:
        result = await harness.send("s", "go")
        assert (result.status, result.text) == ("done", "ok")
    assert len(model.calls) == 3
    assert len({str(call.messages) for call in model.calls}) == 1


@pytest.mark.parity("harness-kernel", 131)
async def test_tries_have_an_end_and_the_last_error_counts() -> None:
    model = flaky(AWAY, AWAY, ModelTimeout(model="m/m", problem="late"))
    async with serve(helper(), default_model=model, error_policy=policy(3)) as harness:
        result = await harness.send("s", "go")
    assert (result.status, result.code, len(model.calls)) == ("failed", "model_timeout", 3)


@pytest.mark.parity("harness-kernel", 131, 133)
async def test_waits_are_doubled_to_a_cap_and_heed_what_the_vendor_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def noted(seconds: float) -> None:
        waits.append(round(seconds, 3))

    clock = SimpleNamespace(**{**vars(asyncio), "sleep": noted})
    monkeypatch.setattr("holdfast.harness.loop.model_call.asyncio", clock)
    limited = ModelRateLimited(model="m/m", problem="busy", retry_after=0.7)
    model = flaky(AWAY, AWAY, AWAY, limited)
    settings = policy(5, backoff=0.02, cap=0.05, jitter=0)
    async with serve(helper(), default_model=model, error_policy=settings) as harness:
        assert (await harness.send("s", "go")).text == "ok"
    assert waits == [0.02, 0.04, 0.05, 0.7]


@pytest.mark.parity("harness-kernel", 132)
async def test_nothing_is_tried_again_once_something_was_said() -> None:
    model = script(Fail(AWAY, after="I was"))
    async with serve(helper(), default_model=model, error_policy=policy(3)) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert (result.status, result.code, result.text) == ("failed", "model_unavailable", "I was")
        (kept,) = only(await session.events(), "message.interrupted")
        assert kept["text"] == "I was"
    assert len(model.calls) == 1


@pytest.mark.parity("harness-kernel", 132)
async def test_a_tool_is_not_called_again_by_a_try() -> None:
    count = 0

    @tool
    async def act() -> str:
        """Act."""
        nonlocal count
        count += 1
        return "acted"

    left = [AWAY]

    def second(call: ModelCall) -> Any:
        return Fail(left.pop()) if left else "ok"

    model = script(Say(calls=[Use("act")]), second)
    async with serve(helper(tools=[act]), default_model=model, error_policy=policy(2)) as harness:
        assert (await harness.send("s", "go")).text == "ok"
    assert (count, len(model.calls)) == (1, 3)


@pytest.mark.parity("harness-kernel", 133)
@pytest.mark.parametrize(
    "error",
    [
        ModelError(model="m/m", problem="no such key", status=401),
        ModelError(model="m/m", problem="bad request", status=400),
        RuntimeError("a fault of the program"),
    ],
)
async def test_what_does_not_pass_is_tried_once(error: Exception) -> None:
    model = flaky(error)
    async with serve(helper(), default_model=model, error_policy=policy(5)) as harness:
        result = await harness.send("s", "go")
    assert (result.status, result.code, len(model.calls)) == ("failed", "model_failed", 1)


@pytest.mark.parity("harness-kernel", 131)
async def test_an_abort_ends_the_waiting_between_tries() -> None:
    model = flaky(AWAY, AWAY)
    settings = policy(5, backoff=60, cap=60)
    async with serve(helper(), default_model=model, error_policy=settings) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        async with asyncio.timeout(20):
            await until(lambda: model.calls)
            await session.abort()
            assert (await session.wait()).status == "aborted"
    assert len(model.calls) == 1
