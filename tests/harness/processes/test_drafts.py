"""What a process shows of a message that another one is writing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Delta, Draft, Event
from holdfast.events import Key
from holdfast.harness.live.log import Listener
from holdfast.harness.session.session import core_of
from holdfast.stores.memory import MemoryStore
from holdfast.testing import FaultyStore
from holdfast.values.stream_items import Item

from .stage import AT, STORY, harness

PATIENCE = 20.0


class LateDrafts(FaultyStore):
    """Its first answer that holds a draft is late."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.seen, self.go = asyncio.Event(), asyncio.Event()

    async def drafts(self, key: Key) -> list[Draft]:
        found = await self.inner.drafts(key)
        if found:
            self.seen.set()
            await self.go.wait()
        return found


@pytest.mark.parity("user-demand", 22)
async def test_a_draft_that_comes_late_is_not_shown_behind_its_message(tmp_path: Path) -> None:
    store = MemoryStore()
    late = LateDrafts(store)
    async with (
        asyncio.timeout(PATIENCE),
        harness(store, tmp_path, 15.0) as driver,
        harness(late, tmp_path, 15.0) as other,
    ):
        driving = await driver.get_or_create(AT.session)
        await driving.post("Tell a story.")
        session = await other.get_or_create(AT.session)
        listener = session.subscribe(after=0)
        reading = asyncio.create_task(_two_runs(listener))
        await late.seen.wait()
        await driving.wait()
        await session.wait()
        late.go.set()
        await driving.send("And then?")
        items = await reading
        story = next(n for n, item in enumerate(items) if _completed(item))
        assert items[story].json()["text"] == STORY  # type: ignore[union-attr]
        id = items[story].id  # type: ignore[union-attr]
        behind = [item for item in items[story:] if isinstance(item, Delta)]
        assert [delta for delta in behind if delta.message == id] == []
        assert core_of(session).live.in_flight.flying == {}


async def _two_runs(listener: Listener) -> list[Item]:
    """What is shown until the second run has ended."""
    items: list[Item] = []
    async for item in listener:
        items.append(item)
        ends = [i for i in items if isinstance(i, Event) and i.kind == "run.finished"]
        if len(ends) == 2:
            break
    listener.close()
    return items


def _completed(item: Item) -> bool:
    return isinstance(item, Event) and item.kind == "message.completed"
