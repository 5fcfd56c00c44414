"""What sessions cost their store: the same for each message, however long the session is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Appended, Event, Key, NewEvent, Store, connect, key, new_id
from holdfast.harness.session.session import core_of
from holdfast.testing import FaultyStore

from .scene import helper, read, script, serve

TREE = Path(__file__).parents[3] / "docs" / "formats" / "log.md"


class Counting(FaultyStore):
    """A store that counts what goes in and what comes out."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.written = self.appends = self.given = 0

    async def append(self, key: Key, events: Sequence[NewEvent], **options: Any) -> Appended:
        self.appends += 1
        self.written += sum(len(event.data) for event in events)
        return await super().append(key, events, **options)

    async def read(self, key: Key, **options: Any) -> AsyncGenerator[Event, None]:
        async for event in self.inner.read(key, **options):
            self.given += 1
            yield event


@pytest.mark.parity("user-demand", 43)
@pytest.mark.parity("harness-kernel", 106)
async def test_a_message_costs_the_thousandth_time_what_it_cost_the_tenth() -> None:
    store = Counting(await connect("memory:"))
    async with serve(helper(), default_model=script("y" * 200), store=store) as harness:
        session = await harness.get_or_create("s")
        costs: list[tuple[int, int]] = []
        for _ in range(1000):
            before = store.appends, store.written
            assert (await session.send("x" * 200)).status == "done"
            costs.append((store.appends - before[0], store.written - before[1]))
    usual = [cost for cost in costs[10:] if cost[0] == 2]
    assert len(usual) > 980  # the others put old turns away
    assert max(size for _, size in usual) - min(size for _, size in usual) < 20
    assert max(size for _, size in costs[10:]) < 2 * usual[0][1]
    await store.aclose()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parity("harness-kernel", 107)
@pytest.mark.parametrize("storage", ["sqlite:{}/x.db", "file:{}/x"])
async def test_a_hundred_messages_take_less_than_a_megabyte(storage: str, tmp_path: Path) -> None:
    model = script("y" * 200)
    sizes = [0]
    for _ in range(3):
        async with serve(helper(), default_model=model, store=storage.format(tmp_path)) as harness:
            session = await harness.get_or_create("s")
            for _ in range(50):
                await session.send("x" * 200)
        sizes.append(await asyncio.to_thread(_size, tmp_path))
    assert sizes[2] < 1_000_000
    assert sizes[3] - sizes[2] < 1.5 * (sizes[2] - sizes[1]) + 50_000  # it does not grow faster


@pytest.mark.parity("harness-kernel", 105)
async def test_the_files_of_a_session_are_those_that_are_documented(tmp_path: Path) -> None:
    from holdfast import Media

    async with serve(helper(), "hi", store=f"file:{tmp_path}/x") as harness:
        await harness.send("s", ["look", Media(b"png", "image/png"), "x" * 100_000])
    found = await asyncio.to_thread(lambda: [*(tmp_path / "x").rglob("*")])
    files = {path.relative_to(tmp_path / "x") for path in found if path.is_file()}
    text = await asyncio.to_thread(TREE.read_text)
    shapes = {re.sub(r"[0-9a-f]{2}(?=/)|[0-9a-f-]{16,}", "*", str(path)) for path in files}
    assert shapes - {"index.db.lock"} == {
        "format.json",
        "logs/*/*.jsonl",
        "logs/*/*.apart/2.json",
        "blobs/*/*",
        "blobs/*/owner.json",
        "index.db",
    }
    for name in {path.parts[0] for path in files} - {"index.db.lock"}:
        assert re.search(rf"^{re.escape(name)}", text, re.MULTILINE), f"{name} is not documented"


def turns(count: int) -> list[NewEvent]:
    """A conversation that a driver has had."""
    events: list[NewEvent] = []
    for n in range(count):
        run, first = new_id(), 5 * n + 2
        events += [
            NewEvent.of("message.received", {"text": f"number {n}"}),
            NewEvent.of("run.started", {"inputs": [first]}, run=run),
            NewEvent.of("model.called", {"model": "scripted/demo"}, run=run),
            NewEvent.of("message.completed", {"text": "ok", "model": "scripted/demo"}, run=run),
            NewEvent.of("run.finished", {}, run=run),
        ]
    return events


@pytest.mark.parity("user-demand", 44)
@pytest.mark.parity("harness-kernel", 112)
async def test_opening_a_session_of_very_many_events_reads_few_of_them() -> None:
    store = Counting(await connect("memory:"))
    created = NewEvent.of("session.created", {"agent": "helper"})
    events = [created, *turns(30_000)]
    for start in range(0, len(events), 1000):
        await store.append(key("s"), events[start : start + 1000], create=True)
    model = script("still here")
    async with serve(helper(), default_model=model, store=store) as harness:
        assert (await harness.send("s", "one more")).text == "still here"
    assert len(model.calls[0].messages) < 500
    model = script("again")
    async with serve(helper(), default_model=model, store=store) as harness:
        store.given = 0
        session = await harness.get_or_create("s")
        assert store.given < 2_000
        assert core_of(session).live.state.head > 150_000
        assert (await session.send("and one more")).text == "again"
        assert store.given < 4_000
    assert read(model.calls[0])[-3:-1] == ["user: one more", "model: still here"]
    await store.aclose()
