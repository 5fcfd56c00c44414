"""Hooks: in order, awaited, and none of them can hurt a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import Hook, LogConfig, Mode, ToolContext, hook, tool
from holdfast.models.scripted import Fail, Say, Use

from .scene import Slow, helper, kinds, script, serve, until


def writes(seen: list[str], kind: str, name: str = "") -> Hook:
    """A hook that takes its time, and then writes down what it was called with."""

    async def hooked(acting: Any, event: Any) -> None:
        await asyncio.sleep(0)
        seen.append(f"{name}{event.kind}")

    return Hook(kind, hooked)


@pytest.mark.parity("harness-kernel", 41)
async def test_hooks_are_called_in_the_order_of_the_log_and_of_the_agent() -> None:
    seen: list[str] = []
    whole = (
        "session.created",
        "message.received",
        "run.started",
        "model.called",
        "message.completed",
        "tool.started",
        "tool.finished",
        "run.finished",
    )

    @tool
    async def look() -> str:
        """Look."""
        seen.append("the tool")
        return "seen"

    def says(text: str) -> Any:
        def said(call: Any) -> Any:
            seen.append("the model")
            return Say(text, calls=[Use("look")] if text == "one" else [])

        return said

    hooks = [writes(seen, kind) for kind in reversed(whole)]
    async with serve(helper(hooks=hooks, tools=[look]), says("one"), says("two")) as harness:
        await harness.send("s", "hello")
        await until(lambda: "run.finished" in seen)
    assert seen == [
        "session.created",
        "message.received",
        "run.started",
        "model.called",
        "the model",
        "message.completed",
        "tool.started",
        "the tool",
        "tool.finished",
        "model.called",
        "the model",
        "message.completed",
        "run.finished",
    ]


@pytest.mark.parity("harness-kernel", 41)
async def test_hooks_of_one_kind_are_called_in_the_order_of_the_agent() -> None:
    seen: list[str] = []
    hooks = [writes(seen, "run.started", f"{n} ") for n in range(3)]
    async with serve(helper(hooks=hooks), "hi") as harness:
        await harness.send("s", "hello")
    assert seen == ["0 run.started", "1 run.started", "2 run.started"]


@pytest.mark.parity("harness-kernel", 41)
async def test_what_happens_between_runs_is_hooked_once() -> None:
    seen: list[str] = []
    watched = ("mode.changed", "my.event", "message.received", "pending.settled")
    hooks = [writes(seen, kind) for kind in watched]

    @tool(approval="ask")
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = helper(hooks=hooks, tools=[pay], modes=[Mode("a"), Mode("b")])
    async with serve(agent, Say(calls=[Use("pay")]), "done") as harness:
        session = await harness.get_or_create("s")
        await session.mode.switch("b")
        await session.emit("my.event")
        await session.send("one")
        await session.approve()
        await session.wait()
        await session.emit("my.event")
        await until(lambda: len(seen) == 5)
        await session.send("two")
        await session.deny()
        await session.wait()
    assert seen == [
        "mode.changed",
        "my.event",
        "message.received",
        "pending.settled",
        "my.event",
        "message.received",
        "pending.settled",
    ]


@pytest.mark.parity("harness-kernel", 42)
async def test_a_hook_that_answers_itself_comes_to_an_end() -> None:
    @hook("my.echo")
    async def echo(acting: Any, event: Any) -> None:
        await acting.emit("my.echo")

    @tool
    async def shout(context: ToolContext) -> str:
        """Shout."""
        await context.emit("my.echo")
        return "shouted"

    records: list[Any] = []
    agent = helper(hooks=[echo], tools=[shout])
    logging = LogConfig(sinks=[records.append], propagate=False)
    async with serve(agent, Say(calls=[Use("shout")]), "ok", logging=logging) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "ok"
        assert (await kinds(session)).count("my.echo") == 26
    assert [r["event"] for r in records if r["event"].startswith("hook")] == ["hooks_too_deep"]


@pytest.mark.parity("harness-kernel", 43)
@pytest.mark.parametrize(
    "kind", ["message.received", "run.started", "model.called", "tool.started", "tool.finished"]
)
async def test_a_hook_that_raises_hurts_nobody(kind: str) -> None:
    seen: list[str] = []

    @hook(kind)
    def broken(acting: Any, event: Any) -> None:
        raise RuntimeError("the hook broke")

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    records: list[Any] = []
    agent = helper(hooks=[broken, writes(seen, kind)], tools=[look])
    logging = LogConfig(sinks=[records.append], propagate=False)
    async with serve(agent, Say(calls=[Use("look")]), "ok", logging=logging) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert (result.status, result.text) == ("done", "ok")
        assert (await kinds(session)).count("tool.finished") == 1
    assert seen[0] == kind
    failed = [r for r in records if r["event"] == "hook_failed"]
    assert len(failed) == len(seen)


@pytest.mark.parity("harness-kernel", 44)
async def test_a_hook_sees_a_failure_and_can_act_on_it() -> None:
    @hook("run.finished")
    async def noted(acting: Any, event: Any) -> None:
        if event.json().get("status", "done") != "done":
            await acting.update_state(last=event.json()["code"])

    model = script(Fail(RuntimeError("no")))
    async with serve(helper(hooks=[noted]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).status == "failed"
        await until(lambda: session.state.get() == {"last": "model_failed"})


@pytest.mark.parity("harness-kernel", 44)
async def test_a_hook_sees_an_abort() -> None:
    seen: list[str] = []
    model = Slow()
    hooks = [writes(seen, "abort.requested"), writes(seen, "run.finished")]
    async with serve(helper(hooks=hooks), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        await session.abort("enough")
        assert (await session.wait()).status == "aborted"
        await until(lambda: len(seen) == 2)
    assert seen == ["abort.requested", "run.finished"]


@pytest.mark.parity("harness-kernel", 41)
async def test_a_process_that_takes_up_a_message_hooks_it(tmp_path: Path) -> None:
    """One that another process left: as a command line does, which drives nothing."""
    from holdfast import NewEvent, connect, key

    storage = f"sqlite:{tmp_path}/x.db"
    async with serve(helper(), "hi", store=storage) as harness:
        await harness.send("s", "one")
    store = await connect(storage)
    await store.append(key("s"), [NewEvent.of("message.received", {"text": "two"})])
    await store.aclose()
    seen: list[str] = []
    agent = helper(hooks=[writes(seen, "message.received")])
    async with serve(agent, "hi", store=storage) as harness:
        session = await harness.get_or_create("s")
        await session.wait()
    assert seen == ["message.received"]
