"""The ends of sessions and harnesses: what must not be deleted, what is written while a session is
closed, and closing that is cut off; and beginnings that fail."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import (
    DeletionRefused,
    Harness,
    InvalidValue,
    SessionNotFound,
    ToolContext,
    connect,
    key,
    tool,
)
from holdfast.harness.host import sessions_of
from holdfast.harness.session.session import core_of
from holdfast.models.scripted import Say, Use
from holdfast.sessions import Sessions

from ..session.test_idle import gone
from ..subagents.scene import lead, plays, scout
from .scene import PATIENCE, Gate, Slow, helper, kinds, script, serve, until

# Deleting


async def test_what_must_be_kept_is_not_deleted_nor_stopped() -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        await session.send("one")
        sessions = Sessions(harness.store)
        await sessions.hold("s", "court order 7")
        with pytest.raises(DeletionRefused, match="court order 7"):
            await harness.delete("s")
        assert harness.get("s") is session
        assert (await session.send("two")).text == "hi"
        await sessions.hold("s", None)
        assert (await harness.delete("s")).removed["logs"] == 1
        assert await harness.store.row(key("s")) is None


async def test_a_harness_does_not_delete_what_is_another_agents() -> None:
    async with connect("memory:") as store:
        mine = serve(helper(), "hi", store=store)
        theirs = serve(helper(label="Other"), "hi", store=store)
        async with mine, theirs:
            await mine.send("s", "one")
            with pytest.raises(InvalidValue, match="helper"):
                await theirs.delete("s")
            assert (await mine.send("s", "two")).text == "hi"
            assert (await theirs.delete("not there")).removed.get("logs", 0) == 0


# Opening


async def test_one_who_begins_a_session_does_so_also_beside_one_who_only_looks_for_it() -> None:
    async with serve(helper(), "hi") as harness:
        asked = (harness.open("s"), harness.get_or_create("s"), harness.open("s"))
        looked, begun, _ = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(looked, SessionNotFound)
        assert begun is harness.get("s")
        assert (await harness.send("s", "one")).text == "hi"


class Down:
    """A source of tools that is not there."""

    name = "down"

    async def connect(self) -> None:
        raise ConnectionError("nobody answers")

    async def tools(self) -> list[Any]:
        return []

    async def close(self) -> None:
        pass


def writers() -> int:
    """How many stores are open that write in a thread."""
    return [thread.name for thread in threading.enumerate()].count("holdfast-writer")


async def test_a_start_that_fails_leaves_no_store_open(tmp_path: Path) -> None:
    before = writers()
    harness = serve(helper(tools=[Down()]), "hi", store=f"sqlite:{tmp_path / 'x.db'}")
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await harness.start()
        await until(lambda: writers() == before)
    await harness.aclose()


# Closing a session


async def test_what_is_written_while_a_session_is_closed_is_driven_afterwards() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        other = await session.threads.create(id="other")
        await other.post("go")
        await model.gate.someone()
        closing = asyncio.create_task(harness.close("s", grace=PATIENCE))
        await until(lambda: sessions_of(harness).changing("s"))
        await session.post("hello")
        assert not sessions_of(harness).drivers.drives(session.key)
        model.gate.open()
        assert await closing
        assert not harness.drives("s")
        again = await harness.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            assert (await again.wait()).text == "Let me see."
        assert (await kinds(again)).count("run.started") == 1


async def test_a_sub_agent_that_begins_while_its_session_is_closed_does_not_go_on_alone() -> None:
    gate, paid = Gate(), list[int]()

    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    @tool(repeat_safe=True)
    async def later(context: ToolContext) -> Any:
        """Look something up, then hand it on."""
        await gate.pass_through()
        return await cast(Any, context).delegate("scout", "Pay it.")

    model = plays(
        {
            "Go.": [Say(calls=[Use("later")]), "All is well."],
            "Pay it.": [Say(calls=[Use("pay", cents=5)]), "It is paid."],
        }
    )
    agent = lead(scout(tools=["pay"]), tools=[pay, later])
    async with Harness(agent, default_model=model, ttl=60) as harness:
        session = await harness.get_or_create("s")
        await session.post("Go.")
        await gate.someone()
        closing = asyncio.create_task(harness.close("s", grace=PATIENCE))
        await until(lambda: sessions_of(harness).changing("s"))
        gate.open()
        assert await closing
        assert (harness.drives("s"), [*sessions_of(harness).logs], paid) == (False, [], [])
        await sessions_of(harness).drivers.look()  # what is left is due
        again = await harness.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            assert (await again.wait()).text == "All is well."
        assert paid == [5]


async def test_a_timer_does_not_keep_what_was_forgotten_in_memory() -> None:
    async with serve(helper(), default_model=script("ok", repeat=True)) as harness:
        kept = []
        for id in ("a", "b", "c"):
            session = await harness.get_or_create(id)
            await session.send("x")
            await session.timers.set("wake up", seconds=7 * 24 * 3_600)
            await session.wait()
            kept.append(weakref.ref(core_of(session).live))
            del session
            await gone(harness, id)
        await until(lambda: (gc.collect(), [one() for one in kept])[1] == [None] * 3)


# Closing the harness


async def test_whoever_stops_waiting_for_the_end_does_not_stop_it(tmp_path: Path) -> None:
    model = Slow()
    before = writers()
    harness = serve(helper(), default_model=model, store=f"sqlite:{tmp_path / 'x.db'}")
    session = await harness.get_or_create("s")
    await session.post("go")
    await model.gate.someone()
    closing = asyncio.create_task(harness.aclose(grace=PATIENCE))
    await until(lambda: sessions_of(harness).drivers._closed)
    closing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await closing
    assert harness.drives("s")
    model.gate.open()
    await harness.aclose()
    assert not harness.drives("s")
    await until(lambda: writers() == before)
    async with serve(helper(), "again", store=f"sqlite:{tmp_path / 'x.db'}") as next:
        assert (await (await next.get_or_create("s")).wait()).text == "Let me see."
