"""What may come in any order between a thread and its sub-agents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

import pytest

from holdfast import Harness, Key, LeaseHeld, NewEvent, connect
from holdfast.events import Appended, Event, key
from holdfast.harness.agents.limits import RunBounds
from holdfast.harness.host import sessions_of
from holdfast.harness.loop.decide import decide
from holdfast.harness.loop.steps import Idle, Report, RunTools, SetDue, Start, Step
from holdfast.harness.session.session import core_of
from holdfast.log.state import fold
from holdfast.models.scripted import Say
from holdfast.state import State
from holdfast.testing.faults import FaultyStore

from ..kernel.scene import PATIENCE, Slow, until
from .scene import GO, child, hand, kinds, lead, outcome, plays, scout, sent

NOW = 1_000
Fact: TypeAlias = tuple[str, dict[str, Any]]


class Late(FaultyStore):
    """A store on which the parent comes to wait only after its sub-agent has ended."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, [])
        self.settled = asyncio.Event()

    async def append(self, key: Key, events: Sequence[NewEvent], **options: Any) -> Appended:
        if any(event.kind == "pending.opened" for event in events):
            await self.settled.wait()
        done = await super().append(key, events, **options)
        if any(event.kind == "pending.settled" for event in events):
            self.settled.set()
        return done


@pytest.mark.parity("user-demand", 9)
async def test_a_sub_agent_may_end_before_its_parent_waits() -> None:
    async with connect("memory:") as inner:
        store = Late(inner)
        async with Harness(lead(), default_model=plays(GO), store=store) as harness:
            session, result = await sent(harness)
            assert result.text == "All is well."
            assert (await outcome(session))["result"] == "The sky is blue."
            found = kinds(await session.events())
            assert "pending.opened" not in found  # an item that nobody could answer any more
            assert found.count("pending.settled") == 1
            row = await store.row(key("s"))
            assert row is not None
            assert (row.pending, row.due) == ({}, None)


async def test_a_sub_agent_that_is_stopped_before_it_begins_does_not_begin() -> None:
    async with connect("memory:") as store:
        slow = Slow()
        model = plays({"Go.": [Say(calls=[hand("Find it.")]), "All is well."]})
        served = lead(scout(model="slow/model"))
        async with Harness(
            served, default_model=model, providers=[slow], store=Holding(store)
        ) as harness:
            session = await harness.get_or_create("s")
            sending = asyncio.create_task(session.send("Go."))
            await until(lambda: core_of(session).live.state.pending)
            await session.abort()
            async with asyncio.timeout(PATIENCE):
                assert (await sending).status == "aborted"
            thread = await child(session)
            await core_of(thread).live.until(lambda: not core_of(thread).live.state.queue)
            assert core_of(thread).live.state.run is None
            assert slow.calls == []


class Holding(FaultyStore):
    """A store on which nobody gets the lease of a sub-agent's thread."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, [])

    async def acquire(self, key: Key, owner: str, **options: Any) -> Any:
        if key.thread.startswith("sub/"):
            await super().acquire(key, "somebody else", steal="to hold it")
        return await super().acquire(key, owner, **options)


@pytest.mark.parity("user-demand", 9)
async def test_it_does_not_matter_who_drives_the_sub_agent() -> None:
    async with connect("memory:") as store:
        there = Harness(lead(), default_model=plays(GO), store=store, ttl=0.5)
        here = Harness(lead(), default_model=plays(GO), store=Elsewhere(store))
        async with there, here:
            session, result = await sent(here)
            assert (result.status, result.text) == ("done", "All is well.")
            started = await (await child(session)).events(kinds=("run.started",))
            assert started[0].json()["driver"] == sessions_of(there).config.owner


class Elsewhere(FaultyStore):
    """A store on which this process never drives a sub-agent's thread."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, [])

    async def acquire(self, key: Key, owner: str, **options: Any) -> Any:
        if key.thread.startswith("sub/"):
            raise LeaseHeld(
                tenant=key.tenant,
                session=key.session,
                thread=key.thread,
                owner="there",
                since=0,
                left=1,
            )
        return await super().acquire(key, owner, **options)


async def test_a_person_decides_where_the_thread_of_a_sub_agent_is_gone() -> None:
    slow = Slow()
    model = plays({"Go.": [Say(calls=[hand("Find it.")]), "All is well."]})
    agent = lead(scout(model="slow/model"))
    async with Harness(agent, providers=[slow], default_model=model, ttl=0.5) as harness:
        session = await harness.get_or_create("s")
        await session.post("Go.")
        await slow.gate.someone()
        await until(lambda: core_of(session).live.state.pending)
        await harness.store.delete((await child(session)).key)
        async with asyncio.timeout(PATIENCE):
            while not (asks := await session.pending()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert [ask.title for ask in asks] == ["scout: Find it."]
            await session.deny(asks[0].id, "it is gone")
            assert (await session.wait()).text == "All is well."


def log(*facts: Fact) -> State:
    events = []
    for seq, (kind, payload) in enumerate(facts, 1):
        id = f"settle:{payload['id']}" if kind == "pending.settled" else f"e{seq}"
        new = NewEvent.of(kind, payload, id=id, run="r" if kind.startswith("run") else None)
        events.append(Event(kind=kind, data=new.data, id=id, run=new.run, seq=seq, at=100 + seq))
    return fold(events)


CREATED = ("thread.created", {"agent": "a/b", "parent": "main", "item": "c!sub", "call": "c"})
TASK = ("message.received", {"text": "Do."})
ENDED: list[Fact] = [("run.started", {"inputs": [2]}), ("run.finished", {"due": 1})]
ASKED: list[Fact] = [
    ("message.received", {"text": "Go."}),
    ("run.started", {"inputs": [1]}),
    ("message.completed", {"calls": [{"id": "c", "name": "subagent"}]}),
    ("tool.started", {"call": "c", "name": "subagent", "repeat": True}),
]
ANSWER = ("pending.settled", {"id": "c!sub", "outcome": "answered", "answer": {"text": "x"}})
OPENED = ("pending.opened", {"id": "c!sub", "what": "external", "call": "c", "parked": True})


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        ([CREATED, TASK], Start(2)),
        ([CREATED, TASK, *ENDED], Report()),
        ([CREATED, TASK, *ENDED, ("message.received", {"text": "More."})], Report()),
        ([CREATED, TASK, *ENDED, ("thread.reported", {"item": "c!sub"})], Idle()),
        ([CREATED, TASK, ("abort.requested", {})], Report()),
        ([CREATED, TASK, ("queue.changed", {"remove": [2]})], Report()),
        ([CREATED, TASK, *ENDED, ("thread.forked", {"parent": "sub/c", "at": 4})], Idle()),
        (ASKED, RunTools(("c",))),
        ([*ASKED, ANSWER], RunTools(("c",))),
        ([*ASKED, OPENED, ("run.waiting", {})], Idle()),
        ([*ASKED, OPENED, ("run.waiting", {}), ANSWER], RunTools(("c",))),
        (
            [*ASKED, OPENED, ("run.waiting", {}), ("message.received", {"how": "steer"})],
            SetDue(None),
        ),
    ],
)
def test_what_is_next(facts: list[Fact], step: Step) -> None:
    assert decide(log(*facts), RunBounds(), NOW) == step


def test_an_answer_that_comes_first_is_the_answer() -> None:
    state = log(*ASKED, ANSWER)
    assert (state.calls["c"].status, state.calls["c"].answer, state.pending) == ("answered", 5, {})


def test_an_answer_to_a_call_that_is_over_changes_nothing() -> None:
    over = [*ASKED, ("tool.finished", {"call": "c", "outcome": "cancelled"})]
    assert log(*over, ANSWER).calls == {}
