"""Streams: exactly what comes, in which order, for each way that a run can go; and what slow,
late and faulty readers get. `docs/streaming.md` has the same lists."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    CaughtUp,
    Delta,
    Event,
    HarnessClosed,
    Mode,
    ModelUnavailable,
    NewEvent,
    SessionNotFound,
    ToolContext,
    tool,
)
from holdfast.harness.live.log import BUFFER
from holdfast.harness.session.session import core_of
from holdfast.models.scripted import Fail, Say, ScriptedModel, Use

from .scene import PATIENCE, Slow, helper, kinds, names, only, read, script, serve, until

DOCS = Path(__file__).parents[3] / "docs" / "streaming.md"
BEGIN = ["message.received", "run.started", "model.called"]
END = ["message.completed", "run.finished"]


def documented(title: str) -> list[str]:
    """The list under a heading of the documentation."""
    match = re.search(
        rf"^### {re.escape(title)}\n.*?```text\n(.*?)```", DOCS.read_text(), re.M | re.S
    )
    assert match, title
    return [line.split("  ")[0].strip() for line in match[1].splitlines() if line.strip()]


@tool
async def look(order: str) -> str:
    """Look."""
    if order == "broken":
        raise RuntimeError("the database is at 10.0.0.1")
    return f"order {order}"


@tool(approval="ask")
async def pay(cents: int) -> str:
    """Pay."""
    return "paid"


@tool
async def change(context: ToolContext) -> str:
    """Change the mode."""
    await context.switch_mode("b", "now b")  # type: ignore[attr-defined]
    return "changed"


def agent() -> Any:
    return helper(tools=[look, pay, change], modes=[Mode("a"), Mode("b")])


async def streamed(*steps: Any, decide: Any = None, per_turn: bool = True) -> list[Any]:
    """All that comes until the run is over, whatever a person has to say in between."""
    model = ScriptedModel(steps, per_turn=per_turn)
    async with serve(agent(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        items = []
        async with contextlib.aclosing(aiter(session.subscribe())) as all_items:
            asking = asyncio.create_task(session.send("go"))
            async for item in all_items:
                items.append(item)
                if isinstance(item, Event) and item.kind == "run.waiting":
                    await decide(session)
                if isinstance(item, Event) and item.kind == "run.finished":
                    break
        await asking
    return items


@pytest.mark.parity("harness-kernel", 83)
async def test_text() -> None:
    async with serve(agent(), "Hello there, you.") as harness:
        session = await harness.get_or_create("s")
        stream = session.stream("hi")
        items = [item async for item in stream]
        assert names(items) == documented("Text")
        assert stream.result.text == "Hello there, you."
        words = [item for item in items if isinstance(item, Delta)]
        assert [word.text for word in words] == ["Hello ", "there, ", "you."]
        assert [word.offset for word in words] == [0, 6, 13]
        completed = [i for i in items if isinstance(i, Event) and i.kind == "message.completed"]
        assert {word.message for word in words} == {completed[0].id}
        numbers = [item.seq for item in items if isinstance(item, Event)]
        assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
        again = [item async for item in session.stream("more")]
        assert names(again) == [*BEGIN, "delta", *END]  # the context is what it was


@pytest.mark.parity("harness-kernel", 84)
async def test_a_tool() -> None:
    items = await streamed(Say("Well.", calls=[Use("look", order="7")]), "done")
    assert names(items) == documented("A tool")


@pytest.mark.parity("harness-kernel", 84)
async def test_an_approval() -> None:
    items = await streamed(
        Say(calls=[Use("pay", cents=5)]), "done", decide=lambda session: session.approve()
    )
    assert names(items) == documented("A tool that a person approves")


@pytest.mark.parity("harness-kernel", 84)
async def test_a_denial() -> None:
    items = await streamed(
        Say(calls=[Use("pay", cents=5)]), "done", decide=lambda session: session.deny(reason="no")
    )
    assert names(items) == documented("A tool that a person denies")
    (ended,) = only(items, "tool.finished")
    assert (ended["outcome"], ended["code"], ended["error"]) == ("denied", "denied", "no")


@pytest.mark.parity("harness-kernel", 84)
async def test_a_denial_by_policy() -> None:
    denied = helper(tools=[look], modes=[Mode("a", approval="deny")])
    async with serve(denied, Say(calls=[Use("look", order="7")]), "done") as harness:
        session = await harness.get_or_create("s")
        items = [item async for item in session.stream("go")]
    assert names(items) == documented("A tool that the mode denies")


@pytest.mark.parity("harness-kernel", 19, 84)
async def test_bad_arguments() -> None:
    items = await streamed(Say(calls=[Use("look", order=7)]), "done")
    assert names(items) == documented("Bad arguments")
    (ended,) = only(items, "tool.finished")
    assert (ended["outcome"], ended["code"]) == ("failed", "bad_arguments")
    assert ended["result"]["error"]["issues"][0]["path"] == "order"


@pytest.mark.parity("harness-kernel", 20, 84)
async def test_a_tool_that_raises() -> None:
    items = await streamed(Say(calls=[Use("look", order="broken")]), lambda c: read(c)[-1])
    assert names(items) == documented("A tool that fails")
    (ended,) = only(items, "tool.finished")
    assert (ended["outcome"], ended["code"]) == ("failed", "tool_failed")
    assert "10.0.0.1" not in str([i.data for i in items if isinstance(i, Event)])


@pytest.mark.parity("harness-kernel", 84)
async def test_a_model_that_fails() -> None:
    assert names(await streamed(Fail(RuntimeError("no")))) == documented("A model that fails")
    broke = Fail(ModelUnavailable(model="m/m", problem="away"), after="I was")
    items = await streamed(broke)
    assert names(items) == documented("A model that breaks off")
    (kept,) = only(items, "message.interrupted")
    assert kept["text"] == "I was"


@pytest.mark.parity("harness-kernel", 84)
async def test_an_abort() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        items = []
        async for item in session.stream("go"):
            items.append(item)
            if isinstance(item, Delta):
                await session.abort()
    assert names(items) == documented("An abort")


@pytest.mark.parity("harness-kernel", 84)
async def test_a_change_of_mode() -> None:
    items = await streamed(Say(calls=[Use("change")]), "in b", per_turn=False)
    assert names(items) == documented("A tool that changes the mode")


@pytest.mark.parity("harness-kernel", 84)
async def test_a_model_that_is_none_is_refused_before_anything_happens() -> None:
    from holdfast import InvalidValue

    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue):
            await session.send("go", model="scripted/other")
        assert await kinds(session) == ["session.created"]


@pytest.mark.parity("harness-kernel", 79)
@pytest.mark.parametrize(
    ("steps", "phases"),
    [
        (["hi"], ["queued", "waiting_model", "closing", "idle"]),
        (
            [Say(calls=[Use("look", order="1")]), "ok"],
            ["queued", "waiting_model", "running_tool", "waiting_model", "closing", "idle"],
        ),
        (
            [Say(calls=[Use("pay", cents=1)]), "ok"],
            [
                "queued",
                "waiting_model",
                "waiting_approval",
                "waiting",
                "waiting_model",
                "running_tool",
                "waiting_model",
                "closing",
                "idle",
            ],
        ),
        ([Fail(RuntimeError("no"))], ["queued", "waiting_model", "error"]),
    ],
)
async def test_the_phases_that_a_run_goes_through(steps: list[Any], phases: list[str]) -> None:
    seen: list[str] = []
    async with serve(agent(), *steps) as harness:
        session = await harness.get_or_create("s")

        def look_at(what: str, id: str, value: Any) -> None:
            if what == "session.event" and session.status.phase != (seen or [""])[-1]:
                seen.append(session.status.phase)

        assert session.status.phase == "idle"
        harness.subscribe(look_at)
        result = await session.send("go")
        if result.status == "waiting":
            assert session.status.pending == 1
            await session.approve()
            await session.wait()
        status = session.status
        assert (status.queued, status.pending, status.run, status.tool) == (0, 0, None, None)
        await harness.close("s")
        assert session.status.phase == "closed"
    assert seen == phases


@pytest.mark.parity("harness-kernel", 79)
async def test_the_status_says_what_is_going_on() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("one")
        await model.gate.someone()
        await session.post("two")
        status = session.status
        assert (status.phase, status.queued) == ("waiting_model", 1)
        assert status.run is not None
        assert (status.session, status.agent, status.mode) == ("s", "helper", "default")
        assert status.model == "slow/model"
        model.gate.open()
        await session.wait()


@pytest.mark.parity("harness-kernel", 81)
async def test_waiting_for_an_event() -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        waiting = asyncio.create_task(session.subscribe().first("run.finished"))
        await session.send("go")
        assert (await waiting).kind == "run.finished"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await session.subscribe().first("run.finished")
        stopped = asyncio.create_task(session.subscribe().first("run.finished"))
        await asyncio.sleep(0)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        found = await session.subscribe(after=0).first("message.received")
        assert found.json() == {"text": "go"}


@pytest.mark.parity("harness-kernel", 82)
@pytest.mark.parametrize("how", ["close", "delete", "aclose"])
async def test_nobody_waits_for_a_session_that_is_gone(how: str) -> None:
    harness = serve(helper(), default_model=Slow())
    await harness.start()
    session = await harness.get_or_create("s")
    waiting = [
        asyncio.create_task(session.subscribe().first("run.finished")),
        asyncio.create_task(session.send("go")),
    ]
    await until(lambda: session.status.phase == "waiting_model")
    if how == "aclose":
        await harness.aclose(grace=0.05)
    elif how == "close":
        await harness.close("s", grace=0.05)
    else:
        await harness.delete("s")
    async with asyncio.timeout(20):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(error, HarnessClosed | SessionNotFound) for error in ended), ended
    await harness.aclose()


@pytest.mark.parity("harness-kernel", 85)
async def test_a_reader_that_raises_or_leaves_changes_nothing() -> None:
    async with serve(helper(), "one two three") as harness:
        session = await harness.get_or_create("s")

        async def broken() -> None:
            async with contextlib.aclosing(aiter(session.stream("go"))) as items:
                async for item in items:
                    if isinstance(item, Delta):
                        raise RuntimeError("no")

        with pytest.raises(RuntimeError):
            await broken()
        assert (await session.wait()).text == "one two three"


def joined(items: list[Any]) -> dict[str, str]:
    """The text of each message as a reader puts it together."""
    found: dict[str, str] = {}
    for item in items:
        if isinstance(item, Delta):
            before = found.get(item.message, "")
            assert item.offset == len(before)
            found[item.message] = before + item.text
    return found


@pytest.mark.parity("harness-kernel", 86)
async def test_a_reader_that_comes_back_misses_and_repeats_nothing() -> None:
    model = Slow("One, two,", " three.")
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        first = []
        async with contextlib.aclosing(aiter(session.subscribe(after=0))) as items:
            async for item in items:
                first.append(item)
                if isinstance(item, Delta):
                    break
        last = max(item.seq for item in first if isinstance(item, Event))
        late = []
        async with contextlib.aclosing(aiter(session.subscribe(after=last))) as items:
            async for item in items:
                late.append(item)
                if isinstance(item, Delta):
                    model.gate.open()
                if isinstance(item, Event) and item.kind == "run.finished":
                    break
        assert names(first)[-2:] == ["caught up", "delta"]
        assert [*joined(late).values()] == ["One, two, three."]
        whole = [e for e in first + late if isinstance(e, Event)]
        assert whole == await session.events()
        assert sum(isinstance(item, CaughtUp) for item in late) == 1


@pytest.mark.parity("user-demand", 29)
@pytest.mark.parity("harness-kernel", 87)
async def test_a_slow_reader_costs_a_bounded_buffer_and_still_gets_all() -> None:
    words = [f"{n} " for n in range(4 * BUFFER)]
    async with serve(helper(), Say(chunks=words), default_model=script(Say(chunks=words))) as h:
        session = await h.get_or_create("s")
        slow = session.subscribe()
        items = aiter(slow)
        await session.send("go")  # and meanwhile nobody reads
        assert len(slow._buffer) <= BUFFER
        found = []
        async for item in items:
            found.append(item)
            if isinstance(item, Event) and item.kind == "run.finished":
                break
        await items.aclose()
        events = [item for item in found if isinstance(item, Event)]
        assert events == (await session.events())[1:]
        assert only(events, "message.completed")[0]["text"] == "".join(words)


async def test_subscriber_that_does_not_read_holds_few_bytes_and_still_gets_all(
    tmp_path: Path,
) -> None:
    """Neither many large payloads wait in memory for it, nor one, nor many that are not large."""
    sizes = [1_000_000] * 60 + [50_000] * 200 + [10_000_000]
    async with serve(helper(), "hi", store=f"sqlite:{tmp_path / 's.db'}") as harness:
        session = await harness.get_or_create("s")
        slow = [session.subscribe() for _ in range(3)]
        items = [aiter(one) for one in slow]
        tracemalloc.start()
        try:
            for number, size in enumerate(sizes):
                await core_of(session).live.store.append(
                    session.key, [NewEvent.of("note.made", {"n": number, "text": "x" * size})]
                )
            await core_of(session).live.reach(len(sizes) + 1)
            await session.emit("note.made", {})  # so that the large one is not the newest
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 12_000_000  # of 80 MB; the newest events are at hand for all
        async with asyncio.timeout(PATIENCE):
            for reading in items:
                found = [await anext(reading) for _ in range(len(sizes) + 1)]
                assert found == (await session.events())[1:]
                await reading.aclose()


@pytest.mark.parity("harness-kernel", 86)
async def test_a_repeat_of_a_message_streams_what_was() -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        first = [i async for i in session.stream("go", key="k") if isinstance(i, Event)]
        again = [i async for i in session.stream("go", key="k") if isinstance(i, Event)]
        assert again == first
