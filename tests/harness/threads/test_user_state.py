"""The user state: its type, changes that depend on what was, and writers that do not see each
other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from holdfast import InvalidAgent, InvalidValue, ToolContext, tool
from holdfast.harness.agents.userstate import WithEvents, checked
from holdfast.models.scripted import Say, Use

from ..kernel.scene import helper, kinds, only, serve


class Basket(msgspec.Struct):
    items: list[str] = []
    count: Annotated[int, msgspec.Meta(ge=0)] = 0
    note: str | None = None


class Wares(pydantic.BaseModel):
    items: list[str] = []
    count: int = pydantic.Field(default=0, ge=0)
    note: str | None = None


SCHEMA = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"type": "string"}},
        "count": {"type": "integer", "minimum": 0},
    },
}
checked({}, SCHEMA)  # what checks a schema is read at its first use: here, not on the loop


@pytest.mark.parity("mastra-session", 134)
@pytest.mark.parametrize("kind", [Basket, Wares])
async def test_a_session_begins_with_the_defaults_and_what_the_agent_gives(kind: Any) -> None:
    agent = helper(state_type=kind, state={"count": 2, "extra": [1]})
    async with serve(agent, "hi") as harness:
        session = await harness.get_or_create("s")
        assert session.state.get() == {"items": [], "count": 2, "note": None, "extra": [1]}


@pytest.mark.parametrize("kind", [Basket, Wares, SCHEMA], ids=["msgspec", "pydantic", "schema"])
def test_a_state_to_begin_with_is_checked_too(kind: Any) -> None:
    with pytest.raises(InvalidAgent, match="count"):
        serve(helper(state_type=kind, state={"count": "two"}), "hi")


@pytest.mark.parity("mastra-session", 135)
@pytest.mark.parametrize("kind", [Basket, Wares, SCHEMA], ids=["msgspec", "pydantic", "schema"])
async def test_what_does_not_fit_is_refused_as_a_whole_and_changes_nothing(kind: Any) -> None:
    agent = helper(state_type=kind, state={"items": [], "count": 0, "extra": 1})
    async with serve(agent, "hi") as harness:
        session = await harness.get_or_create("s")
        start = session.state.get()
        before = await session.events()
        with pytest.raises(InvalidValue, match="count"):
            await session.state.update(items=["a"], count=-1)
        with pytest.raises(InvalidValue, match="items"):
            await session.state.replace({"items": "none"})
        with pytest.raises(InvalidValue, match="count"):
            await session.state.update(lambda state: state.update(count="many"))
        assert await session.events() == before
        assert await session.state.update(count=3) == {**start, "count": 3}
        assert await session.state.update(other="kept") == {**start, "count": 3, "other": "kept"}


async def test_a_tool_is_refused_what_does_not_fit() -> None:
    @tool
    async def put(context: ToolContext, count: int) -> str:
        """Put."""
        await context.update_state(count=count)
        return "put"

    agent = helper(state_type=Basket, tools=[put])
    steps = Say(calls=[Use("put", count=-1), Use("put", count=4)]), "ok"
    async with serve(agent, *steps) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        outcomes = [e.get("outcome", "ok") for e in only(await session.events(), "tool.finished")]
        assert sorted(outcomes) == ["failed", "ok"]
        assert session.state.get()["count"] == 4


@pytest.mark.parity("mastra-session", 136)
async def test_no_function_of_many_writers_is_lost(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    agent = helper(state={"n": 0})

    async def add(state: dict[str, Any]) -> int:
        await asyncio.sleep(0)
        state["n"] += 1
        return int(state["n"])

    async with (
        serve(agent, "hi", store=storage) as one,
        serve(agent, "hi", store=storage) as two,
    ):
        sessions = [
            await one.get_or_create("s"),
            await one.get_or_create("s", thread="side"),
            await two.get_or_create("s"),
        ]
        seen = await asyncio.gather(
            *(session.state.update(add) for _ in range(6) for session in sessions)
        )
        assert sorted(seen) == list(range(1, 19))
        assert await sessions[0].state.update(lambda state: state["n"]) == 18


async def test_tools_change_the_latest_state_by_a_function() -> None:
    @tool
    async def add(context: ToolContext) -> str:
        """Add."""

        def one_more(state: dict[str, Any]) -> int:
            state["n"] = state.get("n", 0) + 1
            return int(state["n"])

        return str(await context.update_state(one_more))

    steps = Say(calls=[Use("add") for _ in range(8)]), "ok"
    async with serve(helper(tools=[add]), *steps) as harness:
        session = await harness.get_or_create("s", thread="side")
        await session.send("go")
        assert session.state.get() == {"n": 8}
        results = {e["result"] for e in only(await session.events(), "tool.finished")}
        assert results == {str(n) for n in range(1, 9)}


@pytest.mark.parity("mastra-session", 137)
async def test_a_function_returns_something_and_its_events_come_with_its_change() -> None:
    agent = helper(state={"n": 1}, events={"my.count": int})
    async with serve(agent, "hi") as harness:
        session = await harness.get_or_create("s")

        def double(state: dict[str, Any]) -> WithEvents:
            state["n"] *= 2
            return WithEvents("doubled", (("my.count", state["n"]), ("my.mark", None)))

        assert await session.state.update(double) == "doubled"
        assert (await kinds(session))[-3:] == ["state.changed", "my.count", "my.mark"]
        before = await session.events()

        def fails(state: dict[str, Any]) -> WithEvents:
            state["n"] = 0
            raise RuntimeError("no")

        def wrong(state: dict[str, Any]) -> WithEvents:
            state["n"] = 0
            return WithEvents(None, (("my.count", "none"),))

        for bad, error in ((fails, RuntimeError), (wrong, InvalidValue)):
            with pytest.raises(error):
                await session.state.update(bad)
        assert await session.events() == before
        assert session.state.get() == {"n": 2}


async def test_what_is_told_is_what_changed_and_nothing_else() -> None:
    start = {"a": 1, "b": {"x": 1, "y": 2}, "c": 3}
    async with serve(helper(state=start), "hi") as harness:
        session = await harness.get_or_create("s")
        await session.state.update(a=1, b={"y": 2, "x": 1})
        await session.state.drop("nobody")
        await session.state.update(lambda state: None)
        assert (await kinds(session)).count("state.changed") == 1  # the one that it begins with
        await session.state.update(a=True, c=3)
        await session.state.replace({"a": True, "b": {"x": 1, "y": 2}})
        told = only(await session.events(), "state.changed")[1:]
        assert told == [{"set": {"a": True}}, {"drop": ["c"]}]


async def test_a_change_within_a_change_is_part_of_it() -> None:
    async with serve(helper(state={"n": 0}), "hi") as harness:
        session = await harness.get_or_create("s")
        late: list[asyncio.Task[Any]] = []

        async def after(go: asyncio.Event) -> None:
            await go.wait()
            await session.state.update(late=True)

        async def outer(state: dict[str, Any]) -> str:
            state["n"] += 1
            inner = await session.state.update(lambda within: within.update(n=within["n"] + 10))
            await session.state.update(b=1)
            late.append(asyncio.create_task(after(done)))
            return f"{inner} {state['n']}"

        done = asyncio.Event()
        async with asyncio.timeout(30):
            assert await session.state.update(outer) == "None 11"
            done.set()
            await asyncio.gather(*late)  # no part of it: that change was made before
        assert session.state.get() == {"n": 11, "b": 1, "late": True}
        assert len(only(await session.events(), "state.changed")) == 3


@pytest.mark.parity("mastra-session", 138)
async def test_what_was_read_does_not_change_and_changing_it_changes_nothing() -> None:
    async with serve(helper(state={"list": [1], "map": {"a": 1}}), "hi") as harness:
        session = await harness.get_or_create("s")
        before = session.state.get()
        kept: list[dict[str, Any]] = []

        def keep(state: dict[str, Any]) -> None:
            state["list"].append(2)
            kept.append(state)

        await session.state.update(keep)
        kept[0]["list"].append(99)
        given = {"a": 2}
        await session.state.update(map=given)
        given["a"] = 99
        session.state.get()["map"]["a"] = 99
        assert before == {"list": [1], "map": {"a": 1}}
        assert session.state.get() == {"list": [1, 2], "map": {"a": 2}}
