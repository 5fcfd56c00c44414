"""Modes: how they change, what a change does to a run, and how far loops go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import InvalidValue, Mode, ToolContext, hook, tool
from holdfast.harness.loop.effects import CHAIN
from holdfast.models.port import ModelCall
from holdfast.models.scripted import Fail, Say, ScriptedModel, Use

from .scene import helper, kinds, only, read, script, serve, until


def recorded(calls: list[str]) -> list[Mode]:
    """Two modes that say who was called, in order."""

    def says(what: str) -> Any:
        async def said(where: Any, argument: Any) -> None:
            calls.append(f"{what} {argument}")

        return said

    return [
        Mode("a", on_enter=says("enter a"), on_exit=says("exit a")),
        Mode("b", instructions="In b.", on_enter=says("enter b"), on_exit=says("exit b")),
    ]


@pytest.mark.parity("harness-kernel", 14, 16)
async def test_exit_then_the_event_then_enter() -> None:
    calls: list[str] = []
    model = script("hi")
    async with serve(helper(modes=recorded(calls)), default_model=model) as harness:
        harness.subscribe(
            lambda what, id, value: calls.append(value.kind) if what == "session.event" else None
        )
        session = await harness.get_or_create("s")
        calls.clear()  # nobody entered the mode that a session begins in
        assert await session.mode.switch("b")
        assert calls == ["exit a b", "mode.changed", "enter b None"]
        assert session.mode.name == session.status.mode == "b"
        assert not await session.mode.switch("b")
        assert len(calls) == 3
        await session.send("hello")
        assert model.calls[0].system == "Help.\n\nIn b."


@pytest.mark.parity("harness-kernel", 16)
async def test_the_mode_that_a_session_begins_in_is_not_entered() -> None:
    calls: list[str] = []
    async with serve(helper(modes=recorded(calls)), "hi") as harness:
        await harness.send("s", "hello")
        await harness.close("s")
        await harness.send("s", "hello again")
    assert calls == []


@pytest.mark.parity("harness-kernel", 14)
async def test_an_unknown_mode_is_refused() -> None:
    async with serve(helper(modes=[Mode("a"), Mode("b")]), "hi") as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue, match="a, b"):
            await session.mode.switch("c")
        assert session.mode.name == "a"


@pytest.mark.parity("harness-kernel", 14, 15)
async def test_a_tool_changes_the_mode_and_what_it_says_joins_the_run() -> None:
    calls: list[str] = []

    @tool
    async def change(context: ToolContext) -> str:
        """Change."""
        await context.switch_mode("b", "now pay")  # type: ignore[attr-defined]
        return "changed"

    def answer(call: ModelCall) -> str:
        return "paid" if read(call)[-1] == "user: now pay" else "?"

    model = script(
        lambda call: Say(calls=[Use("change")]) if len(call.messages) == 1 else answer(call)
    )
    agent = helper(modes=recorded(calls), tools=[change])
    async with serve(agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("hello")
        assert (result.text, result.mode) == ("paid", "b")
        assert calls == ["exit a b", "enter b now pay"]
        assert [call.system for call in model.calls] == ["Help.", "Help.\n\nIn b."]
        assert (await kinds(session)).count("run.started") == 1


@pytest.mark.parity("harness-kernel", 15)
@pytest.mark.parametrize("mode", ["a", "b"])
async def test_a_change_with_a_text_is_a_turn_before_the_next(mode: str) -> None:
    """Also where the mode stays what it is."""
    model = script(lambda call: f"heard {read(call)[-1]}")
    async with serve(helper(modes=[Mode("a"), Mode("b")]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        assert await session.mode.switch(mode, "look around") == (mode == "b")
        result = await session.send("hello")
        assert result.text == "heard user: hello"
    told = ["user: look around", "model: heard user: look around", "user: hello"]
    assert read(model.calls[-1]) == told


@pytest.mark.parity("harness-kernel", 17)
async def test_the_steps_of_a_run_have_an_end() -> None:
    @tool
    async def again() -> str:
        """Again."""
        return "more"

    model = script(Say(calls=[Use("again")]), repeat=True)
    agent = helper(tools=[again], modes=[Mode("a", steps=3)])
    async with serve(agent, default_model=model) as harness:
        result = await harness.send("s", "go")
        assert (result.status, result.code) == ("failed", "limit_steps")
        assert len(model.calls) == 3
        lower = await harness.send("s", "go", limits={"steps": 2})
        assert (lower.code, len(model.calls)) == ("limit_steps", 5)


@pytest.mark.parity("harness-kernel", 17)
@pytest.mark.parametrize("kind", ["message.completed", "run.finished"])
async def test_a_hook_that_always_wants_more_comes_to_an_end(kind: str) -> None:
    @hook(kind)
    async def more(acting: Any, event: Any) -> None:
        await acting.send("more", how="steer")

    model = script("again", repeat=True)
    async with serve(helper(hooks=[more]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).status == "done"
        await until(lambda: len(model.calls) > CHAIN and session.status.phase == "idle")
        await session.emit("my.mark")  # which the driver looks at, when it has done all else
        await harness.close("s")
    assert len(model.calls) == CHAIN + 1


@pytest.mark.parity("harness-kernel", 17, 18)
async def test_what_a_run_says_to_itself_ends_with_it() -> None:
    @tool
    async def more(context: ToolContext) -> str:
        """More."""
        await context.send("more", how="steer")  # type: ignore[attr-defined]
        return "more to come"

    model = ScriptedModel([Say(calls=[Use("more")])], repeat=True)
    agent = helper(tools=[more], modes=[Mode("a", steps=4)])
    async with serve(agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert (result.status, result.code) == ("failed", "limit_steps")
        await session.wait()
        assert len(session.queue) == 0
        assert len(model.calls) == 4


@pytest.mark.parity("harness-kernel", 17, 18)
async def test_runs_that_start_each_other_end_and_leave_nothing_to_the_next() -> None:
    @tool
    async def enqueue(context: ToolContext) -> str:
        """Send another message."""
        await context.send("again")  # type: ignore[attr-defined]
        return "sent"

    def step(call: ModelCall) -> Say | str:
        last = read(call)[-1]
        if last.startswith("tools:"):
            return "sent one"
        return f"answer to {last}" if "mine" in last else Say(calls=[Use("enqueue")])

    model = script(step, repeat=True)
    async with serve(helper(tools=[enqueue]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        await session.wait()
        runs = (await kinds(session)).count("run.started")
        assert 5 < runs < 100
        refused = [
            e for e in only(await session.events(), "tool.finished") if e.get("outcome") == "failed"
        ]
        assert len(refused) == 1
        assert (await session.send("mine")).text == "answer to user: mine"


@pytest.mark.parity("harness-kernel", 18)
async def test_what_a_failed_run_leaves_in_the_queue_gets_its_own_answer() -> None:
    model = script(
        lambda call: (
            Fail(RuntimeError("no"))
            if read(call)[-1].endswith("first")
            else f"answer to {read(call)[-1]}"
        ),
        repeat=True,
    )
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        first, second, third = await asyncio.gather(
            *(session.send(text) for text in ("first", "second", "third"))
        )
        assert first.status == "failed"
        assert second.text.endswith("second")
        assert third.text.endswith("third")
