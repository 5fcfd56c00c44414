"""Drivers that keep on: when the store fails them, when what they were about to write is not so any
more, and when there are logs that nobody can drive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import HeadMoved, Key, NewEvent, StoreError, ToolContext, connect, key, tool
from holdfast import events as ev
from holdfast.events import Appended
from holdfast.harness.host import sessions_of
from holdfast.harness.session.session import core_of
from holdfast.harness.workers import recovery
from holdfast.log.codec import LIMITS
from holdfast.models.scripted import Say, Use
from holdfast.store import Store, wall_clock
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore, Stall
from holdfast.values.stream_items import Trouble
from tests.virtual_time import virtual_time

from .scene import PATIENCE, Gate, Slow, helper, serve, until

# A store that fails


@pytest.mark.parametrize("error", [StoreError(problem="the disk is full"), OSError("reset")])
@virtual_time
async def test_a_renewal_that_fails_in_any_way_is_tried_again(error: Exception) -> None:
    gate, begun = Gate(), list[int]()

    @tool(repeat_safe=True)
    async def work() -> str:
        """Work."""
        begun.append(1)
        await gate.pass_through()
        return "done"

    steps = (Say(calls=[Use("work")]), "end")
    store = FaultyStore(MemoryStore(), [Fail(method="renew", call=1, error=error)])
    agent = helper(tools=[work])
    first = serve(agent, *steps, store=store, ttl=0.9)
    second = serve(agent, *steps, store=store.inner, ttl=0.9)
    async with first, second:
        session = await first.get_or_create("s")
        await session.post("go")
        await gate.someone()
        await until(lambda: store.calls["renew"] >= 4)
        gate.open()
        assert (await session.wait()).text == "end"
        assert begun == [1]  # the other never took it up


class Resetting(FaultyStore):
    """A store whose driver fails a follower with an error of its own, when `broken`."""

    broken = False

    async def follow(self, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        async with aclosing(super().follow(*args, **options)) as items:
            async for item in items:
                if self.broken:
                    self.broken = False
                    raise ConnectionResetError("peer 10.0.0.7")
                yield item


async def test_a_reader_of_a_log_outlives_an_error_that_is_not_ours() -> None:
    store = Resetting(MemoryStore())
    async with serve(helper(), "hi", store=store) as harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("s")
        listener = session.subscribe()
        assert (await session.send("one")).text == "hi"
        store.broken = True
        assert (await session.send("two")).text == "hi"
        listener.close()
        told = [item async for item in listener if isinstance(item, Trouble)]
        assert [trouble.code for trouble in told] == ["store_unavailable"]
        assert "ConnectionResetError" in told[0].problem
        assert "10.0.0.7" not in told[0].problem  # words of others may hold anything


# What came meanwhile


class Holding(FaultyStore):
    """A store that keeps back what settles an item, once, until it is let `go`."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.held = Stall(method="")
        self.passed = asyncio.Event()

    async def append(self, key: Key, events: Sequence[NewEvent], **options: Any) -> Appended:
        late = not self.held.reached.is_set() and events[0].id.startswith("settle:")
        if late:
            await self.held.strike()
        try:
            return await super().append(key, events, **options)
        finally:
            if late:
                self.passed.set()


@tool(approval="ask", expires=0.2)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@tool
async def shop(context: ToolContext) -> str:
    """Buy something."""
    return (await context.invoke("pay", cents=5)).content


@pytest.mark.parametrize("call", [Use("pay", cents=5), Use("shop")], ids=["call", "within"])
async def test_an_item_that_is_extended_in_time_does_not_expire(call: Any) -> None:
    store = Holding(MemoryStore())
    agent = helper(tools=[pay, shop])
    async with serve(agent, Say(calls=[call]), "end", store=store) as harness:
        session = await harness.get_or_create("s")
        (item,) = (await session.send("go")).pending
        async with asyncio.timeout(PATIENCE):
            await store.held.reached.wait()  # the driver is about to write that it has expired
            await session.extend(item.id, 3_600)
            store.held.go.set()
            await store.passed.wait()
            assert (await session.approve(item.id)).outcome == "approved"
            assert (await session.wait()).text == "end"
        done = await session.events(kinds=("tool.finished",))
        assert {one.payload(ev.ToolFinished).outcome for one in done} == {"ok"}


class Counting(FaultyStore):
    """Counts the appends that were refused because the log had grown."""

    refused = 0

    async def append(self, key: Key, events: Sequence[NewEvent], **options: Any) -> Appended:
        try:
            return await super().append(key, events, **options)
        except HeadMoved:
            self.refused += 1
            raise


async def test_many_calls_within_one_are_not_in_each_others_way() -> None:
    many, did = 60, list[int]()

    @tool
    async def inner(n: int) -> str:
        """Do one."""
        did.append(n)
        return "done"

    @tool
    async def outer(context: ToolContext) -> str:
        """Do many."""
        calls = (context.invoke("inner", n=n) for n in range(many))
        return " ".join(result.content for result in await asyncio.gather(*calls))

    store = Counting(MemoryStore())
    agent = helper(tools=[outer, inner])
    async with serve(agent, Say(calls=[Use("outer")]), "end", store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "end"
        assert sorted(did) == [*range(many)]
        done = await session.events(kinds=("tool.finished",))
        assert {one.payload(ev.ToolFinished).outcome for one in done} == {"ok"}
        assert store.refused < 2 * many


async def test_to_cancel_what_has_ended_does_not_stop_what_came_after() -> None:
    store = FaultyStore(MemoryStore())
    model = Slow()
    async with serve(helper(), default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        first = session.stream("first")
        reading = asyncio.create_task(_read(first))
        await model.gate.someone()
        second = asyncio.create_task(session.send("second"))
        await until(lambda: core_of(session).live.state.queue)
        held = Stall(method="read", call=store.calls["read"] + 1)
        store.plan.append(held)
        cancelling = asyncio.create_task(first.cancel("not needed any more"))
        async with asyncio.timeout(PATIENCE):
            await held.reached.wait()
            run = session.run.id
            old, model.gate = model.gate, Gate()
            old.open()
            await model.gate.someone()  # the second is what goes on now
            assert session.run.id != run
            held.go.set()
            await cancelling
            model.gate.open()
            await reading
            assert (first.result.status, first.result.text) == ("done", "Let me see.")
            assert (await second).status == "done"
        assert await session.events(kinds=("abort.requested",)) == []


async def _read(stream: Any) -> list[Any]:
    return [item async for item in stream]


# Time in which nobody drives


async def test_only_the_time_in_which_it_is_driven_counts_against_a_run() -> None:
    now = wall_clock() - 3_600_000
    store = MemoryStore(clock=lambda: now)
    await left(store, "s", newer=False)
    run = ev.RunStarted(driver="gone", inputs=[2], limits={"seconds": 60})
    await store.append(key("s"), [NewEvent.of("run.started", run, run="r")])
    now = wall_clock()  # the machine was off for an hour
    async with serve(helper(), "hi", store=store) as harness:
        session = await harness.get_or_create("s")
        result = await session.wait()
        assert (result.status, result.text, result.run) == ("done", "hi", "r")


# What cannot be driven


async def left(store: Store, id: str, *, newer: bool) -> None:
    """A message that nobody has taken up; of a `newer` version, so that we cannot."""
    created = ev.SessionCreated(agent="helper")
    events = [
        NewEvent.of("session.created", created),
        NewEvent.of("message.received", {"text": "hello"}),
    ]
    if newer:
        events.append(NewEvent.of("metadata.changed", {"set": {"x": 1}}, v=99))
    await store.append(key(id), events, create=True)


async def test_what_cannot_be_driven_is_opened_once_and_not_kept_open() -> None:
    async with connect("memory:") as inner:
        for n in range(5):
            await left(inner, f"new{n}", newer=True)
        store = FaultyStore(inner)
        async with serve(helper(), "hi", store=store, ttl=0.1) as harness:
            await until(lambda: store.calls["runnable"] >= 5)
            await until(lambda: not [*sessions_of(harness).logs])
            assert store.calls["follow"] == 5
            await left(inner, "old", newer=False)
            await until(lambda: store.calls["follow"] == 6)
            session = await harness.get_or_create("old")
            assert (await session.wait()).text == "hi"


async def test_what_is_behind_more_than_a_look_shows_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "LIMITS", replace(LIMITS, page=10))
    async with connect("memory:") as store:
        for n in range(25):
            await left(store, f"new{n}", newer=True)
        await left(store, "old", newer=False)
        async with serve(helper(), "hi", store=store, ttl=0.1), asyncio.timeout(PATIENCE):
            while (row := await store.row(key("old"))) is None or row.run != "done":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await left(store, "new", newer=False)
            while (row := await store.row(key("new"))) is None or row.run != "done":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
