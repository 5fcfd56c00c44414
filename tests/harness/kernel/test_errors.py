"""Errors: what users are told, what operators are told, and what an application may change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Attempts,
    ErrorPolicy,
    Event,
    Hook,
    LogConfig,
    Retry,
    RunFailed,
    StoreUnavailable,
    Trouble,
    connect,
    tool,
)
from holdfast.models.scripted import Fail, Say, Use
from holdfast.testing import Fail as StoreFail
from holdfast.testing import FaultyStore

from .scene import Slow, helper, names, only, script, serve, until

SECRET = "postgres://admin:hunter2@10.0.0.1"


def broken() -> Any:
    return script(Fail(RuntimeError(SECRET)))


@pytest.mark.parity("harness-kernel", 127, 128)
async def test_users_are_told_nothing_from_inside() -> None:
    async with serve(helper(), default_model=broken()) as harness:
        session = await harness.get_or_create("s")
        stream = session.stream("go")
        items = [item async for item in stream]
        result = stream.result
        assert (result.code, result.error) == ("model_failed", "The model call failed.")
        assert result.stack is None
        with pytest.raises(RunFailed) as caught:
            result.raise_for_status()
        shown = [str(result), str(session.status), str(caught.value), repr(caught.value.fields)]
        shown += [bytes(item.data).decode() for item in items if isinstance(item, Event)]
        assert not [text for text in shown if "hunter2" in text or "Traceback" in text]
        assert session.status.error == "model_failed"


@pytest.mark.parity("harness-kernel", 127)
async def test_operators_are_told_what_it_was() -> None:
    records: list[Any] = []
    logging = LogConfig(sinks=[records.append], propagate=False)
    async with serve(
        helper(), default_model=script(Fail(RuntimeError("disk 7"))), logging=logging
    ) as h:
        await h.send("s", "go")
    (failed,) = [r for r in records if r["event"] == "run_failed"]
    assert "disk 7" in str(failed)
    assert failed["error"]["code"] == "model_failed"


@pytest.mark.parity("harness-kernel", 129)
@pytest.mark.parametrize(
    ("policy", "message", "stack"),
    [
        (ErrorPolicy(), "The model call failed.", False),
        (ErrorPolicy(include_stack_in_status=True), "The model call failed.", True),
        (ErrorPolicy(expose_internal_errors=True), "RuntimeError: disk 7", True),
    ],
)
async def test_what_the_policy_shows(policy: ErrorPolicy, message: str, stack: bool) -> None:
    model = script(Fail(RuntimeError("disk 7")))
    async with serve(helper(), default_model=model, error_policy=policy) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        (ended,) = only(await session.events(), "run.finished")
    assert result.error is not None
    assert message in result.error
    assert ("Traceback" in (result.stack or "")) == stack
    assert ended.get("stack") == result.stack


@pytest.mark.parity("harness-kernel", 129)
async def test_even_what_is_exposed_is_masked() -> None:
    policy = ErrorPolicy(expose_internal_errors=True)
    async with serve(helper(), default_model=broken(), error_policy=policy) as harness:
        result = await harness.send("s", "go")
    assert "hunter2" not in str(result)


@pytest.mark.parity("harness-kernel", 129)
@pytest.mark.parametrize("exposed", [False, True])
async def test_a_model_reads_what_a_tool_raised_only_where_that_is_wanted(exposed: bool) -> None:
    @tool
    async def bad() -> str:
        """Bad."""
        raise RuntimeError("disk 7")

    policy = ErrorPolicy(expose_internal_errors=exposed)
    steps = Say(calls=[Use("bad")]), "ok"
    async with serve(helper(tools=[bad]), *steps, error_policy=policy) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        (ended,) = only(await session.events(), "tool.finished")
    assert ("disk 7" in str(ended)) == exposed


@pytest.mark.parity("harness-kernel", 134)
async def test_an_application_names_its_own_errors() -> None:
    class Quota(Exception): ...

    def classify(error: BaseException, fault: Any) -> dict[str, Any] | None:
        if isinstance(error, Quota):
            return {"code": "model_rate_limited", "public_message": "Come back tomorrow."}
        return None

    policy = ErrorPolicy(classify=classify, retry=Retry(model=Attempts(3, backoff=0)))
    model = script(Fail(Quota("x")))
    async with serve(helper(), default_model=model, error_policy=policy) as harness:
        result = await harness.send("s", "go")
    assert (result.code, result.error) == ("model_rate_limited", "Come back tomorrow.")
    assert len(model.calls) == 3  # what it is named decides whether it is tried again


@pytest.mark.parity("harness-kernel", 134)
async def test_a_classify_that_raises_is_passed_over() -> None:
    def classify(error: BaseException, fault: Any) -> None:
        raise RuntimeError("no")

    async with serve(
        helper(), default_model=broken(), error_policy=ErrorPolicy(classify=classify)
    ) as harness:
        assert (await harness.send("s", "go")).code == "model_failed"


@pytest.mark.parity("harness-kernel", 135)
async def test_a_session_is_closed_by_what_will_not_pass_and_can_be_opened_again() -> None:
    policy = ErrorPolicy(close_session_on_fatal=True)
    model = script(Fail(RuntimeError("no")))
    async with serve(helper(), default_model=model, error_policy=policy) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert result.status == "failed"
        await until(lambda: harness.get("s") is None)
        assert session.status.phase == "closed"
        again = await harness.get_or_create("s")
        assert again is not session
        assert (await again.send("go")).status == "failed"


@pytest.mark.parity("harness-kernel", 135)
async def test_an_abort_closes_nothing() -> None:
    policy = ErrorPolicy(close_session_on_fatal=True)
    model = Slow(quick=["again"])
    async with serve(helper(), default_model=model, error_policy=policy) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        await session.abort()
        assert (await session.wait()).status == "aborted"
        assert (await session.send("again")).status == "done"
        assert harness.get("s") is session


@pytest.mark.parity("harness-kernel", 136)
async def test_a_run_that_failed_has_its_figures_after_reopening(tmp_path: Path) -> None:
    from holdfast.values.metrics import metrics

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    storage = f"sqlite:{tmp_path}/x.db"
    steps = Say(calls=[Use("look")], usage={"input_tokens": 7}), Fail(RuntimeError("no"))
    async with serve(helper(tools=[look]), *steps, store=storage) as harness:
        result = await harness.send("s", "go")
    async with serve(helper(tools=[look]), *steps, store=storage) as harness:
        session = await harness.get_or_create("s")
        found = metrics(await session.events(), result.run)
    assert found == result.metrics
    assert (found.status, found.usage, found.tool_calls) == ("failed", {"input_tokens": 7}, 1)
    assert [error.code for error in found.errors] == ["model_failed"]


@pytest.mark.parity("harness-kernel", 142)
async def test_a_log_sink_that_raises_hurts_no_run() -> None:
    def sink(record: Any) -> None:
        raise RuntimeError("no")

    logging = LogConfig(level="debug", sinks=[sink], propagate=False)
    async with serve(helper(), "hi", logging=logging) as harness:
        assert (await harness.send("s", "go")).text == "hi"
        assert sum(harness._logs.failures.values()) > 0


# The store


QUICK = ErrorPolicy(retry=Retry(storage=Attempts(3, backoff=0)))


async def faulty(place: str = "memory:") -> FaultyStore:
    return FaultyStore(await connect(place))


def failing(store: FaultyStore, method: str, *calls: int, after: bool = False) -> None:
    """Let these of the next calls of a method fail."""
    done = store.calls[method]
    store.plan += [StoreFail(method=method, call=done + n, after=after) for n in calls]


@pytest.mark.parity("user-demand", 24)
@pytest.mark.parity("harness-kernel", 113)
async def test_a_message_that_cannot_be_kept_is_not_accepted() -> None:
    store = await faulty()
    async with serve(helper(), "hi", store=store, error_policy=QUICK) as harness:
        session = await harness.get_or_create("s")
        failing(store, "append", *range(1, 100))
        with pytest.raises(StoreUnavailable) as caught:
            await session.send("go")
        store.plan.clear()
        assert (caught.value.code, caught.value.retryable) == ("store_unavailable", True)
        assert await session.transcript() == []
        assert (await session.send("go")).text == "hi"
    await store.aclose()


@pytest.mark.parity("user-demand", 24)
@pytest.mark.parity("harness-kernel", 113)
@pytest.mark.parametrize("call", [1, 2])
async def test_a_store_that_stays_away_is_told_of_and_the_run_goes_on_when_it_is_back(
    call: int,
) -> None:
    """The first append writes the message and starts its run, the second one ends it."""
    records: list[Any] = []
    store = await faulty()
    logging = LogConfig(sinks=[records.append], propagate=False)
    settings = {"error_policy": QUICK, "ttl": 0.1, "logging": logging}
    async with serve(helper(), "hi", store=store, **settings) as harness:
        session = await harness.get_or_create("s")
        failing(store, "append", *range(call, call + 3))
        stream = session.stream("go")
        items = [item async for item in stream]
        assert stream.result.text == "hi"
        told = [item.code for item in items if isinstance(item, Trouble)]
        assert told
        assert set(told) == {"store_unavailable"}
        assert [r["event"] for r in records if r["event"] == "append_failed"] == [
            "append_failed"
        ] * 3
        assert "drive_failed" in [r["event"] for r in records]
    await store.aclose()


@pytest.mark.parity("harness-kernel", 114)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2])
async def test_a_write_is_tried_again_and_is_there_once(call: int, after: bool) -> None:
    store = await faulty()
    async with serve(helper(), "hi", store=store, error_policy=QUICK) as harness:
        session = await harness.get_or_create("s")
        failing(store, "append", call, call + 1, after=after)
        assert (await session.send("go")).text == "hi"
        assert [k for k in names(await session.events()) if k != "context.built"] == [
            "session.created",
            "message.received",
            "run.started",
            "model.called",
            "message.completed",
            "run.finished",
        ]
    await store.aclose()


@pytest.mark.parity("harness-kernel", 115)
@pytest.mark.parametrize(
    "method", ["put_draft", "renew", "save_snapshot", "load_snapshot", "drafts", "release"]
)
async def test_what_fails_beside_the_log_is_contained(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.harness.live import log_loader
    from holdfast.harness.loop import model_call

    monkeypatch.setattr(model_call, "DRAFT", 0.01)
    monkeypatch.setattr(log_loader, "SNAPSHOT", 1)
    store = await faulty()
    words = Say(chunks=["a ", "b ", "c"], delay=0.05)
    agent = helper(hooks=[Hook("run.finished", lambda context, event: None)])  # for `release`
    store.plan = [StoreFail(method=method, call=n) for n in range(1, 1000)]
    async with serve(agent, default_model=script(words), store=store, ttl=0.09) as harness:
        session = await harness.get_or_create("s")
        for _ in range(2):
            assert (await session.send("go")).text == "a b c"
        assert store.calls[method] or method == "drafts"  # which only who takes over reads
    await store.aclose()
