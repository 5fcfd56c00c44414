"""Wherever the log of a conversation is cut, what is left is a legal conversation, and a harness
that finds it brings it to its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Event
from holdfast.harness.live.log import Live
from holdfast.harness.live.prompt_history import History
from holdfast.log.state import fold
from holdfast.models.port import PromptMessage
from holdfast.state import VERSION, State
from holdfast.store import Snapshot
from holdfast.stores.memory import MemoryStore
from holdfast.transcript import transcript

from ..crash.scene import illegal
from .conversation import AT, Plan, plans, play, quiet, served

MOST = 64 * 1024
MODEL = "scripted/demo"
places = st.integers(0, 10_000)  # of a cut: how long a log gets is a matter of time


@given(plans)
@pytest.mark.parity("user-demand", 1, 2, 3)
def test_every_cut_of_a_log_is_a_history_that_a_strict_model_reads(plan: Plan) -> None:
    events = asyncio.run(play(plan))
    for cut in range(len(events) + 1):
        assert illegal(events[:cut]) is None, _told(events[:cut])
        paired(events[:cut])


@given(plans, places)
def test_a_process_that_opens_a_log_reads_what_the_last_one_read(plan: Plan, place: int) -> None:
    events = asyncio.run(play(plan))
    cut = 1 + place % len(events)
    whole = History()
    for event in events[:cut]:
        whole.add(event)
    assert asyncio.run(_opened(events[:cut])) == whole.messages(MODEL, {})


async def _opened(events: list[Event]) -> tuple[PromptMessage, ...]:
    store = MemoryStore()
    await store.restore(AT, everything(events))
    lease = await store.acquire(AT, "me")
    for cut in range(0, len(events), 7):  # as if it had been snapshotted there
        state = msgspec.Raw(msgspec.json.encode(fold(events[:cut])))
        kept = Snapshot(log=lease.log, seq=cut, version=VERSION, state=state)
        await store.save_snapshot(AT, kept, fence=lease)
    live = Live(store, AT)
    await live.open()
    try:
        assert live.state == fold(events)
        return live.history.messages(MODEL, {})
    finally:
        await live.aclose()


@given(plans, places)
@pytest.mark.parity("user-demand", 5)
def test_a_state_and_the_events_after_it_are_the_state_of_all(plan: Plan, place: int) -> None:
    events = asyncio.run(play(plan))
    whole = fold(events)
    assert len(msgspec.json.encode(whole)) < MOST
    cut = place % (len(events) + 1)
    kept = msgspec.json.encode(fold(events[:cut]))
    assert len(kept) < MOST
    assert fold(events[cut:], msgspec.json.decode(kept, type=State)) == whole


@given(plans, places, places)
@pytest.mark.parity("user-demand", 3, 70)
def test_from_every_cut_a_harness_comes_to_rest(plan: Plan, first: int, second: int) -> None:
    events = asyncio.run(play(plan))
    cut = 1 + first % len(events)
    after = asyncio.run(_resumed(events[:cut], plan))
    assert [event.id for event in after[:cut]] == [event.id for event in events[:cut]]
    assert illegal(after) is None, _told(after)
    assert paired(after) == []
    assert unallowed(after) == []
    state = fold(after)
    assert (state.calls, state.pending, state.queue, state.active) == ({}, {}, (), None)
    cut = 1 + second % len(after)
    later = asyncio.run(_resumed(after[:cut], plan))
    assert paired(later) == unallowed(later) == []


async def _resumed(events: list[Event], plan: Plan) -> list[Event]:
    """What becomes of a log that ends like this, once a harness finds it and somebody writes."""
    store = MemoryStore()
    await store.restore(AT, everything(events))
    async with served(store, plan) as session:
        await quiet(session)
        await session.post("Go on.")
        await quiet(session)
        return await session.events()


async def everything(events: Iterable[Event]) -> AsyncIterator[Event]:
    for event in events:
        yield event


def paired(events: list[Event]) -> list[str]:
    """The calls that are open; each other call has one outcome."""
    ends = Counter(event.json()["call"] for event in events if event.kind == "tool.finished")
    assert [call for call, times in ends.items() if times > 1] == []
    calls = [call for message in transcript(events) for call in message.calls]
    assert len({call.id for call in calls}) == len(calls)
    assert all((call.outcome is not None) == (call.id in ends) for call in calls)
    return [call.id for call in calls if call.outcome is None]


def unallowed(events: list[Event]) -> list[str]:
    """The calls that were started against what their tools say of them."""
    yes = {e.json()["id"] for e in events if e.kind == "pending.settled" and _approved(e)}
    begun = [event.json() for event in events if event.kind == "tool.started"]
    return [
        start["call"]
        for start in begun
        if start["name"] == "denied" or (start["name"] == "asks" and start["by"] not in yes)
    ]


def _approved(event: Event) -> bool:
    return bool(event.json()["outcome"] == "approved")


def _told(events: list[Event]) -> list[tuple[int, str, object]]:
    return [(event.seq, event.kind, event.json()) for event in events]
