"""What people send: text, media, keys that make repeats safe, and what is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidValue, Media, RunLimits, environment, tool
from holdfast.environment import Environment
from holdfast.events import MessageInterrupted
from holdfast.models.port import Chunk, EndChunk, FromUser, ModelCall, TextChunk
from holdfast.models.scripted import Say, Use
from holdfast.values.media import Media as Shown

from .scene import helper, kinds, read, script, serve

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.mark.parametrize("storage", ["memory:", "sqlite:{}/x.db", "file:{}/x"])
async def test_media_reach_the_model_and_stay(storage: str, tmp_path: Path) -> None:
    where = storage.format(tmp_path)
    model = script("a cat", "still a cat")
    async with serve(helper(), default_model=model, store=where) as harness:
        session = await harness.get_or_create("s")
        await session.send(["What is this?", Media(PNG, "image/png", "cat.png")])
        (asked, _) = await session.transcript()
        assert asked.text == "What is this?"
        assert asked.parts[0]["media_type"] == "image/png"
        assert "data" not in asked.parts[0]  # the bytes stand beside the log
        if where == "memory:":
            await session.send("and now?")
            return
    model = script("a cat", "still a cat")
    async with serve(helper(), default_model=model, store=where) as harness:
        await harness.send("s", "and now?")
    first = model.calls[0].messages[0]
    assert isinstance(first, FromUser)
    assert first.content[1] == Shown(PNG, "image/png", "cat.png")


@pytest.mark.parametrize("content", [[3], [b"raw"], [Path("x.png")]])
async def test_what_cannot_be_sent_is_refused_with_a_remedy(content: Any) -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue, match="Media"):
            await session.send(content)
        assert await session.transcript() == []


@pytest.mark.parity("harness-kernel", 149, 77)
@pytest.mark.parametrize("storage", ["memory:", "sqlite:{}/x.db"])
async def test_the_same_key_is_the_same_message(storage: str, tmp_path: Path) -> None:
    model = script("hi")
    where = storage.format(tmp_path)
    async with serve(helper(), default_model=model, store=where) as harness:
        session = await harness.get_or_create("s")
        results = await asyncio.gather(*(session.send("go", key="order-7") for _ in range(5)))
        assert len({result.run for result in results}) == 1
        again = await session.send("go", key="order-7")
        assert again == results[0]
        assert (await kinds(session)).count("message.received") == 1
        with pytest.raises(InvalidValue, match="order-7"):
            await harness.send("s", "other words", key="order-7")
        other = await session.send("go", key="order-8")
        assert other.run != again.run
    if where != "memory:":
        async with serve(helper(), default_model=model, store=where) as harness:
            assert (await harness.send("s", "go", key="order-7")).run == again.run
    assert len(model.calls) == 2


@pytest.mark.parity("harness-kernel", 77)
async def test_who_sent_it_and_what_they_noted_is_kept() -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        await session.send("go", key="k", actor="ann", metadata={"channel": "mail"})
        (message, _) = await session.transcript()
        assert (message.id, message.actor) == ("in:k", "ann")
        assert message.metadata == {"channel": "mail"}
        for key in ("", "x" * 600):
            with pytest.raises(InvalidValue):
                await session.send("go", key=key)


@pytest.mark.parity("harness-kernel", 78)
async def test_what_a_send_returns() -> None:
    model = script(Say("hi", usage={"input_tokens": 3, "output_tokens": 1}))
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert (result.session, result.thread, result.status) == ("s", "main", "done")
        assert (result.text, result.output, result.pending) == ("hi", None, ())
        assert (result.agent, result.mode, result.model) == ("helper", "default", "scripted/demo")
        assert (result.code, result.error) == (None, None)
        assert result.usage == {"input_tokens": 3, "output_tokens": 1}
        (ended,) = await session.events(kinds=("run.finished",))
        assert (result.seq, result.run) == (ended.seq, ended.run)
        assert result.metrics is not None
        assert result.metrics.status == "done"
        assert result.raise_for_status() is result
        assert await session.wait() == result


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"steps": 2}, "limit_steps"),
        ({"tokens": 15}, "limit_tokens"),
        (RunLimits(cost=0.015), "limit_cost"),
    ],
)
async def test_limits_of_a_run(limits: Any, code: str) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    usage = {"input_tokens": 9, "output_tokens": 1}
    model = script(Say(calls=[Use("look")], usage=usage), repeat=True)
    async with serve(
        helper(tools=[look]), default_model=model, price=lambda ref, usage: 0.01
    ) as harness:
        result = await harness.send("s", "go", limits=limits)
        assert (result.status, result.code) == ("failed", code)
        assert len(model.calls) == 2


async def test_the_time_of_a_run_is_limited() -> None:
    @tool
    async def sleep() -> str:
        """Sleep."""
        await asyncio.Event().wait()
        return "never"

    model = script(Say(calls=[Use("sleep")]), "never")
    async with serve(helper(tools=[sleep]), default_model=model) as harness:
        async with asyncio.timeout(20):
            result = await harness.send("s", "go", limits={"seconds": 0.2})
        assert (result.status, result.code) == ("failed", "limit_time")


class OddClock(Environment):
    """A clock that runs at another rate, and that can be set back."""

    def __init__(self, rate: float = 1.0) -> None:
        super().__init__()
        self.rate, self.back = rate, 0
        self._begun = time.time_ns()

    def time_ns(self) -> int:
        now = time.time_ns()
        return self._begun + int((now - self._begun) * self.rate) - self.back


class Halting:
    """A model that writes some words and then nothing, until it is stopped; later calls answer."""

    ref = "m/halting"

    def __init__(self, stopped: Callable[[], None] = lambda: None, silent: int = 1) -> None:
        self.calls, self._stopped, self._silent = 0, stopped, silent

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.calls += 1
        yield TextChunk("Some words")
        if self.calls <= self._silent:
            try:
                await asyncio.Event().wait()
            finally:
                self._stopped()
        yield EndChunk("stop")


async def test_the_time_of_a_run_ends_by_the_clock_that_decides() -> None:
    model = Halting(silent=100)
    with environment.use(OddClock(rate=0.5)):
        async with serve(helper(), default_model=model) as harness, asyncio.timeout(20):
            result = await harness.send("s", "go", limits={"seconds": 0.2})
    assert (result.status, result.code, result.text) == ("failed", "limit_time", "Some words")
    assert model.calls == 1


async def test_text_is_kept_if_the_clock_is_set_back_at_the_time_limit() -> None:
    clock = OddClock()
    model = Halting(lambda: setattr(clock, "back", 60 * 10**9))
    with environment.use(clock):
        async with serve(helper(), default_model=model) as harness, asyncio.timeout(20):
            session = await harness.get_or_create("s")
            result = await session.send("go", limits={"seconds": 0.2})
            texts = await session.events(kinds=("message.interrupted",))
    assert (result.status, result.text, model.calls) == ("done", "Some words", 2)
    kept = [event.payload(MessageInterrupted) for event in texts]
    assert [(each.text, each.shown) for each in kept] == [("Some words", False)]


@pytest.mark.parametrize("limits", [{"step": 1}, {"steps": "x"}])
async def test_limits_that_are_none_are_refused(limits: Any) -> None:
    async with serve(helper(), "hi") as harness:
        with pytest.raises(InvalidValue, match="limits"):
            await harness.send("s", "go", limits=limits)


async def test_an_empty_message_is_a_message() -> None:
    model = script("hi")
    async with serve(helper(), default_model=model) as harness:
        assert (await harness.send("s", "")).status == "done"
    assert read(model.calls[0]) == ["user: [empty message]"]
