"""What lists and forks cost, counted: calls of the store, and what it is made to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast import Harness
from holdfast.events import Event
from holdfast.harness.session.session import core_of
from holdfast.models import ScriptedModel
from holdfast.stores.memory import MemoryStore
from holdfast.testing import FaultyStore

from ..kernel.scene import helper


class Counting(FaultyStore):
    """Counts calls, and the events that were read."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.events = 0

    def read(self, *args: Any, **more: Any) -> AsyncGenerator[Event, None]:
        return self._counted(super().read(*args, **more))

    async def _counted(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        async for event in events:
            self.events += 1
            yield event

    def since(self, before: Counter[str]) -> dict[str, int]:
        return {name: n for name, n in (self.calls - before).items() if name != "follow"}


def served(store: Counting) -> Harness:
    return Harness(helper(), default_model=ScriptedModel(["Hi."], repeat=True), store=store)


@pytest.mark.parametrize("threads", [10, 300])
async def test_a_page_of_threads_is_one_query_however_many_there_are(threads: int) -> None:
    store = Counting()
    async with served(store) as harness:
        session = await harness.get_or_create("s")
        for n in range(threads - 1):
            await session.thread.create(f"Thread {n}", id=f"t{n}")
        before, read = Counter(store.calls), store.events
        page = await session.thread.list(limit=10)
        assert len(page.items) == 10
        assert (store.since(before), store.events - read) == ({"find": 1}, 0)


async def test_a_fork_at_the_head_costs_the_same_however_long_its_parent_is() -> None:
    costs = []
    for turns in (120, 360):  # both have a snapshot, and a window of the same size
        store = Counting()
        harness = Harness(
            helper(),
            default_model=ScriptedModel(["Hi."], repeat=True, keep_calls=False),
            store=store,
            window_turns=10,
        )
        async with harness:
            session = await harness.get_or_create("s")
            for n in range(turns):
                await session.send(str(n))
            before, read = Counter(store.calls), store.events
            fork = await session.thread.clone()
            assert core_of(fork).live.state.head == core_of(session).live.state.head + 1
            costs.append((store.since(before), store.events - read))
    (few, read_few), (many, read_many) = costs
    assert few.pop("save_snapshot", 1) == many.pop("save_snapshot", 1) == 1
    assert few == many
    assert abs(read_many - read_few) <= 10 * 5  # no more than the window differs by
