"""Events of a conversation are erased, and it goes on: nothing that was closed opens again, and
nothing runs that nobody allowed."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from holdfast import Event
from holdfast.log.state import fold
from holdfast.stores.memory import MemoryStore

from ..crash.scene import illegal
from .conversation import AT, Plan, plans, play, quiet, served
from .test_cuts import everything, places


@given(plans, places, st.lists(places, min_size=1, max_size=4))
def test_a_conversation_goes_on_whatever_was_erased(
    plan: Plan, place: int, erased: list[int]
) -> None:
    events = asyncio.run(play(plan))
    cut = 1 + place % len(events)
    after = asyncio.run(_erased(events[:cut], {1 + number % cut for number in erased}, plan))
    assert illegal(after) is None
    state = fold(after)
    assert (state.calls, state.pending, state.queue, state.active) == ({}, {}, (), None)
    asked = {event.id for event in after if event.kind == "pending.settled"}
    for start in (event.json() for event in after if event.kind == "tool.started"):
        assert start.get("name") != "denied"
        assert start.get("name") != "asks" or f"settle:{start['by']}" in asked


async def _erased(events: list[Event], numbers: set[int], plan: Plan) -> list[Event]:
    store = MemoryStore()
    await store.restore(AT, everything(events))
    await store.erase(AT, sorted(numbers - {1}), reason="by request")
    async with served(store, plan) as session:
        await quiet(session)
        await session.post("Go on.")
        await quiet(session)
        return await session.events()
