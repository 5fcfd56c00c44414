"""Events: those of the program's own, what each carries, and finding them again."""

from __future__ import annotations

import re

import msgspec
import pydantic
import pytest

from holdfast import InvalidAgent, InvalidValue, LogDamaged, NewEvent, ToolContext, key, tool
from holdfast.models.scripted import Say, Use

from .scene import helper, only, serve


class Note(msgspec.Struct):
    text: str
    stars: int = 0


@tool
async def look(order: str) -> str:
    """Look."""
    return f"order {order}"


@pytest.mark.parity("harness-kernel", 45)
async def test_events_of_the_program_are_checked_where_they_are_declared() -> None:
    async with serve(helper(events={"note.taken": Note}), "hi") as harness:
        session = await harness.get_or_create("s")
        seq = await session.emit("note.taken", Note("good", 5), actor="ann")
        await session.emit("note.taken", {"text": "also good"})
        for bad in ({"stars": 5}, {"text": 1}, None):
            with pytest.raises(InvalidValue, match=r"note\.taken"):
                await session.emit("note.taken", bad)
        await session.emit("other.kind", [1, 2])
        taken = await session.events(kinds=("note.taken",))
        assert [event.json() for event in taken] == [
            {"text": "good", "stars": 5},
            {"text": "also good"},
        ]
        assert (taken[0].seq, taken[0].actor) == (seq, "ann")


class Rating(pydantic.BaseModel):
    stars: int = pydantic.Field(ge=1, le=5)


@pytest.mark.parity("harness-kernel", 45)
async def test_a_declared_type_may_be_pydantics() -> None:
    async with serve(helper(events={"note.rated": Rating}), "hi") as harness:
        session = await harness.get_or_create("s")
        await session.emit("note.rated", Rating(stars=5))
        await session.emit("note.rated", {"stars": 4})
        with pytest.raises(InvalidValue, match=r"note\.rated.*stars"):
            await session.emit("note.rated", {"stars": 9})
        rated = await session.events(kinds=("note.rated",))
        assert [event.json() for event in rated] == [{"stars": 5}, {"stars": 4}]


@pytest.mark.parity("harness-kernel", 3, 45)
def test_a_type_that_json_cannot_carry_is_found_at_once() -> None:
    class Odd:
        pass

    with pytest.raises(InvalidAgent, match=r"note\.odd") as caught:
        serve(helper(events={"note.odd": Odd}, output_type=Odd), "hi")
    assert len(caught.value.faults) == 2


@pytest.mark.parity("harness-kernel", 45)
@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("run.started", "is in the reserved namespace 'run'"),
        ("grant.made", "is in the reserved namespace 'grant'"),
        ("openai.item", "is in the reserved namespace 'openai'"),
        ("pydantic_ai.message", "is in the reserved namespace 'pydantic_ai'"),
        ("word", "must be 'namespace.name'"),
        ("word.", "must be 'namespace.name'"),
        (".word", "must be 'namespace.name'"),
        ("", "must be 'namespace.name'"),
    ],
)
async def test_reserved_kinds_are_rejected(kind: str, problem: str) -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue, match=re.escape(f"{kind!r} {problem}")):
            await session.emit(kind, {})
    with pytest.raises(InvalidAgent, match=re.escape(f"{kind!r} {problem}")):
        serve(helper(events={kind: Note}), "hi")


async def test_only_an_unknown_kind_of_the_core_keeps_a_session_from_being_driven() -> None:
    async with serve(helper(), "one", "two") as harness:
        session = await harness.get_or_create("s")
        await session.emit("note.saved", {"text": "mine"})
        await harness.store.append(key("s"), [NewEvent.of("langgraph.to_come")])
        assert (await session.send("go")).text == "one"
        await harness.store.append(key("s"), [NewEvent.of("session.to_come")])
        with pytest.raises(LogDamaged, match="upgrade holdfast"):
            await session.send("go")


@pytest.mark.parity("harness-kernel", 45)
async def test_a_tool_that_emits_what_is_not_declared_fails_and_the_run_goes_on() -> None:
    @tool
    async def note(context: ToolContext, text: str | int) -> str:
        """Note."""
        await context.emit("note.taken", {"text": text})
        return "noted"

    calls = [Use("note", text=1), Use("note", text="fine")]
    agent = helper(events={"note.taken": Note}, tools=[note])
    async with serve(agent, Say(calls=calls), "ok") as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "ok"
        ended = only(await session.events(), "tool.finished")
        assert sorted(e.get("outcome", "ok") for e in ended) == ["failed", "ok"]
        (event,) = await session.events(kinds=("note.taken",))
        assert event.json() == {"text": "fine"}
        (message, *_) = only(await session.events(), "message.completed")
        assert event.cause == message["calls"][1]["id"]


@pytest.mark.parity("harness-kernel", 46)
async def test_what_an_event_carries_and_how_a_call_is_followed() -> None:
    async with serve(helper(tools=[look]), Say(calls=[Use("look", order="7")]), "ok") as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go", actor="ann")
        events = await session.events()
    assert [event.seq for event in events] == [*range(1, len(events) + 1)]
    assert len({event.id for event in events}) == len(events)
    assert sorted(event.at for event in events) == [event.at for event in events]
    by_kind = {event.kind: event for event in events}
    assert by_kind["message.received"].actor == "ann"
    assert {e.run for e in events if e.kind.split(".")[0] in ("run", "model", "tool")} == {
        result.run
    }
    call = next(e for e in only(events, "message.completed") if e.get("calls"))["calls"][0]
    assert only(events, "tool.started")[0]["call"] == call["id"]
    assert only(events, "tool.finished")[0]["call"] == call["id"]
    assert by_kind["tool.finished"].id == f"done:{call['id']}"
    assert only(events, "run.started")[0]["inputs"] == [by_kind["message.received"].seq]


@pytest.mark.parity("harness-kernel", 47)
async def test_events_are_found_by_what_they_are() -> None:
    async with serve(helper(), "one", "two") as harness:
        session = await harness.get_or_create("s")
        first = await session.send("1")
        second = await session.send("2")
        await session.emit("my.mark", {"n": 1})
        whole = await session.events()
        ended = await session.events(kinds=("run.finished",))
        assert [event.run for event in ended] == [first.run, second.run]
        assert {event.run for event in await session.events(run=second.run)} == {second.run}
        assert await session.events(after=first.seq) == whole[first.seq :]
        assert await session.events(limit=2) == whole[-2:]
        assert await session.events(limit=0) == []
        assert await session.events(kinds=("run.finished",), limit=1) == ended[1:]
        middle = whole[len(whole) // 2].at
        since, until = await session.events(since=middle), await session.events(until=middle)
        assert since == [event for event in whole if event.at >= middle]
        assert until == [event for event in whole if event.at <= middle]
        assert await session.events(since=whole[-1].at + 1) == []
        assert [e.kind for e in await session.events(kinds=("my.mark", "run.started"))] == [
            "run.started",
            "run.started",
            "my.mark",
        ]
