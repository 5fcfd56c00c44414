"""Two harnesses serve one session while people act on either: it comes to rest as with one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Event
from holdfast.harness.session.session import core_of
from holdfast.log.state import fold
from holdfast.stores.memory import MemoryStore

from ..crash.scene import illegal
from .conversation import Plan, act, plans, quiet, served
from .test_cuts import paired, unallowed


@given(plans, st.lists(st.booleans(), min_size=8, max_size=8))
@pytest.mark.parity("harness-kernel", 109)
def test_who_is_told_makes_no_difference(plan: Plan, first: list[bool]) -> None:
    events = asyncio.run(_play(plan, first))
    assert illegal(events) is None
    assert paired(events) == unallowed(events) == []
    state = fold(events)
    assert (state.calls, state.pending, state.queue, state.active) == ({}, {}, (), None)
    asked = [event.json()["what"] for event in events if event.kind == "pending.opened"]
    assert "external" not in asked  # nobody died


async def _play(plan: Plan, first: list[bool]) -> list[Event]:
    store = MemoryStore()
    async with served(store, plan) as one, served(store, plan) as other:
        await one.post("Begin.")
        for place, done in enumerate(plan.acts):
            await act(one if first[place] else other, done)
        await quiet(other)
        await core_of(one).live.reach(core_of(other).live.state.head)
        await quiet(one)
        return await one.events()
