"""A model that asks for far too many calls in one message: the first are made, each of the others
is refused with an outcome of its own, at a cost that grows with their number and not faster."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from holdfast import Harness, LogConfig, Store, connect, tool
from holdfast.events import Event
from holdfast.harness.agents.config import CALLS
from holdfast.harness.loop.perform import BATCH
from holdfast.harness.session.session import Session
from holdfast.log.state import fold
from holdfast.models.port import FromTools
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.state import OPEN_CALLS, State
from holdfast.testing.faults import FaultyStore

from ..crash.scene import doubled, illegal
from ..processes.test_approvals import restored
from .scene import PATIENCE, helper, script, serve

STATE = 64 << 10  # bytes that the state of a log may have


class Counted:
    """A tool that counts how often it was called."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def tool(self) -> object:
        @tool
        def look(n: int) -> str:
            """Look."""
            self.made.append(n)
            return f"saw {n}"

        return look


def asking(counted: Counted, number: int, store: Store) -> tuple[Harness, ScriptedModel]:
    model = script(Say("All.", calls=[Use("look", n=n) for n in range(number)]), "Done.")
    agent = helper(tools=[counted.tool()])
    quiet = LogConfig(level="silent")
    return serve(agent, store=store, default_model=model, logging=quiet), model


async def refused(session: Session, number: int) -> None:
    """Each call has one outcome, and all but the first were refused."""
    events = await session.events()
    [message] = [m for m in await session.transcript() if m.calls]
    assert len(message.calls) == number
    outcomes = [call.outcome.outcome for call in message.calls if call.outcome is not None]
    assert outcomes == ["ok"] * CALLS + ["failed"] * (number - CALLS)
    last = message.calls[-1].outcome
    assert last is not None
    assert last.result == f"A message can make at most {CALLS} calls: this one was not made."
    ended = [event.json()["call"] for event in events if event.kind == "tool.finished"]
    assert sorted(ended) == sorted(call.id for call in message.calls)
    assert doubled(events) == []
    assert illegal(events) is None


@pytest.mark.parametrize("number", [100, 2000])
async def test_calls_beyond_the_limit_are_refused_one_by_one(number: int) -> None:
    counted = Counted()
    async with connect("memory:") as store, asyncio.timeout(PATIENCE):
        harness, model = asking(counted, number, store)
        async with harness:
            session = await harness.get_or_create("s")
            result = await session.send("Go.")
            assert (result.status, result.text) == ("done", "Done.")
            await refused(session, number)
    assert sorted(counted.made) == list(range(CALLS))
    answers = model.calls[-1].messages[-1]
    assert isinstance(answers, FromTools)
    assert len(answers.results) == number


async def cost(number: int) -> tuple[Counter[str], int, int]:
    """What is written for so many calls: events by kind, bytes, appends."""
    async with connect("memory:") as inner, asyncio.timeout(PATIENCE):
        store = FaultyStore(inner)
        harness, _ = asking(Counted(), number, store)
        async with harness:
            session = await harness.get_or_create("s")
            await session.send("Go.")
            events = await session.events()
    kinds = Counter(event.kind for event in events)
    return kinds, sum(len(event.data) for event in events), store.calls["append"]


async def test_the_cost_grows_with_the_number_of_calls() -> None:
    (few, few_bytes, few_appends), (many, bytes, appends) = await cost(500), await cost(2000)
    assert many["tool.finished"] == 2000
    assert many - few == Counter({"tool.finished": 1500})
    assert bytes < 4.2 * few_bytes
    assert appends - few_appends <= 3


async def test_the_state_stays_small_however_many_calls_a_message_has() -> None:
    async with connect("memory:") as store, asyncio.timeout(PATIENCE):
        harness, _ = asking(Counted(), 2000, store)
        async with harness:
            session = await harness.get_or_create("s")
            await session.send("Go.")
            events = await session.events()
    state, largest = State(), 0
    for event in events:
        state = fold([event], state)
        largest = max(largest, len(msgspec.json.encode(state)))
    assert largest < STATE


async def test_a_driver_that_dies_between_refusals_leaves_the_rest_to_the_next() -> None:
    counted = Counted()
    async with connect("memory:") as store, asyncio.timeout(PATIENCE):
        harness, _ = asking(counted, 2000, store)
        async with harness:
            session = await harness.get_or_create("s")
            await session.send("Go.")
            events = await session.events()
    with_message = next(e.seq for e in events if e.kind == "message.completed") + OPEN_CALLS - CALLS
    for cut in (with_message, with_message + BATCH):  # what one append holds is there whole
        counted.made.clear()
        harness, _ = asking(counted, 2000, await restored(events[:cut]))
        async with harness, asyncio.timeout(PATIENCE):
            session = await harness.get_or_create("s")
            assert (await session.wait()).status == "done"
            await refused(session, 2000)
        assert sorted(counted.made) == list(range(CALLS))


async def test_an_aborted_run_still_has_one_outcome_for_each_call() -> None:
    async with connect("memory:") as inner, asyncio.timeout(PATIENCE):
        harness, _ = asking(Counted(), 2000, inner)
        async with harness:
            session = await harness.get_or_create("s")
            await session.post("Go.")
            async for item in session.subscribe(after=0):
                if isinstance(item, Event) and item.kind == "message.completed":
                    await session.abort()
                    break
            await session.wait()
            events = await session.events()
            [message] = [m for m in await session.transcript() if m.calls]
            assert all(call.outcome is not None for call in message.calls)
    assert doubled(events) == []
    assert illegal(events) is None
