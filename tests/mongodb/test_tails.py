"""Events move from head documents into batches, and nobody notices."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any

import bson
from pymongo import AsyncMongoClient, monitoring

from holdfast import Appended, NewEvent
from holdfast.stores.mongodb import MongoStore
from holdfast.stores.mongodb import entry as entries
from holdfast.stores.mongodb.batches import roll
from holdfast.stores.mongodb.entry import TAIL_BYTES, TAIL_MOST
from holdfast.testing.samples import KEY, SIDE, note, read_all, seqs

from .conftest import Raw

MANY = 5 * TAIL_MOST
LIMIT = 200  # more than are read with the head


async def grown(store: MongoStore, count: int = MANY) -> None:
    """A log of so many appends, one event each."""
    for n in range(1, count + 1):
        await store.append(KEY, [note(n)], create=True)


async def test_every_number_is_read_once_wherever_it_is(store: MongoStore, raw: Raw) -> None:
    await grown(store)
    assert await raw.batches.count_documents({}) > 2
    head = await raw.logs.find_one({})
    assert head is not None
    assert 0 < len(head["tail"]) <= TAIL_MOST
    assert await seqs(store) == list(range(1, MANY + 1))
    for after in range(MANY):
        assert (
            await seqs(store, after=after, limit=3) == list(range(1, MANY + 1))[after : after + 3]
        )
    for before in range(2, MANY + 2):
        down = list(range(before - 1, 0, -1))
        assert await seqs(store, before=before, limit=3, reverse=True) == down[:3]


async def test_what_is_copied_and_not_dropped_yet_is_seen_once(store: MongoStore) -> None:
    await grown(store, 3)
    entry = await store._heads.existing(KEY)
    frozen, update = entries.frozen(entry)
    assert await store._heads.swap(entry, frozen, update)
    await roll(store._db, frozen)
    assert await seqs(store) == [1, 2, 3]
    assert await seqs(store, limit=2, reverse=True) == [3, 2]
    assert await store.append(KEY, [note(2), note(4)]) == Appended((2, 4), 4, 1)
    assert await seqs(store) == [1, 2, 3, 4]
    assert [damage async for damage in store.verify()] == []


async def test_a_copy_that_comes_late_brings_nothing_back(store: MongoStore) -> None:
    await grown(store, 3)
    entry = await store._heads.existing(KEY)
    frozen, update = entries.frozen(entry)
    assert await store._heads.swap(entry, frozen, update)
    await store.erase(KEY, [2], reason="asked")
    await roll(store._db, frozen)
    await grown(store, MANY)
    texts = [event.json() for event in await read_all(store, limit=3)]
    assert texts == [{"n": 1}, {"erased": "asked"}, {"n": 3}]


async def test_the_newest_events_of_a_fork_come_from_all_its_logs(store: MongoStore) -> None:
    at = MANY // 2 + 3  # within a batch
    await grown(store)
    await store.fork(KEY, "side", at=at, first=note("fork"))
    for more in range(2 * TAIL_MOST):
        head = at + 1 + more
        for limit in (1, more + 1, more + 2, more + 20, head, LIMIT):
            down = list(range(head, 0, -1))[:limit]
            assert await seqs(store, SIDE, limit=limit, reverse=True) == down
        await store.append(SIDE, [note(f"side-{more}")])


async def test_the_newest_events_cost_one_command_and_no_other_document(
    url: str, store: MongoStore, raw: Raw
) -> None:
    await grown(store)
    await store._heads.aclose()
    heard = Commands()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, event_listeners=[heard])
    async with client, aclosing(await MongoStore.open(url, client=client)) as reader:
        heard.counts.clear()
        await raw.command("profile", 2)
        assert len(await read_all(reader, limit=20, reverse=True)) == 20
        await raw.command("profile", 0)
    assert heard.counts - Counter(hello=9, endSessions=9) == Counter(aggregate=1)
    (read,) = await raw["system.profile"].find({"command.aggregate": "logs"}).to_list()
    assert read["docsExamined"] <= 1 + 20 // entries.TAIL_BATCHES + 1


async def test_two_that_do_not_know_of_each_other_fill_one_log(
    store: MongoStore, other: MongoStore
) -> None:
    async def write(writer: MongoStore, name: str) -> None:
        for n in range(MANY):
            await writer.append(KEY, [note(f"both-{n}"), note(f"{name}-{n}")], create=True)

    await asyncio.gather(write(store, "a"), write(other, "b"))
    found = await read_all(store)
    assert [event.seq for event in found] == list(range(1, 3 * MANY + 1))
    assert len({event.id for event in found}) == 3 * MANY
    assert [damage async for damage in other.verify()] == []


async def test_an_id_is_known_again_wherever_its_event_went(store: MongoStore) -> None:
    old = [NewEvent.of("note.made", {"n": n}) for n in range(MANY)]
    for event in old:
        await store.append(KEY, [event, note(event.id)], create=True)
    for n, event in enumerate(old):
        again = await store.append(KEY, [note(event.id), event])
        assert again.seqs == (2 * n + 2, 2 * n + 1)
        assert again.fresh == 0
    await store.fork(KEY, "side", at=MANY, first=NewEvent.of("note.made"))
    assert (await store.append(SIDE, old[:3])).seqs == (1, 3, 5)
    assert (await store.append(SIDE, old[-1:])).fresh == 1


class Commands(monitoring.CommandListener):
    """What a client asked the server for, and how many bytes it sent with it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.sent = self.open = 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.counts[event.command_name] += 1
        self.sent += len(bson.encode(event.command))
        self.open += 1

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        self.open -= 1

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        self.open -= 1

    async def settled(self) -> None:
        """Wait for what rolls out of the head, which is written beside it, behind the appends."""
        async with asyncio.timeout(30):
            await asyncio.sleep(0.01)
            while self.open:  # noqa: ASYNC110 - the driver calls, and has no event
                await asyncio.sleep(0.01)


async def test_an_append_costs_the_same_however_long_the_log_is(url: str) -> None:
    heard = Commands()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, event_listeners=[heard])
    async with client, aclosing(await MongoStore.open(url, client=client)) as store:
        await _costs_the_same(store, heard)


async def _costs_the_same(store: MongoStore, heard: Commands) -> None:
    async def cost() -> tuple[Counter[str], int]:
        await heard.settled()
        heard.counts.clear()
        heard.sent = 0
        for _ in range(80):
            await store.append(KEY, [NewEvent.of("message.received", {"text": "x" * 500})])
        await heard.settled()
        return heard.counts.copy(), heard.sent

    await store.append(KEY, [NewEvent.of("note.made")], create=True)
    await cost()
    early, sent_early = await cost()
    for _ in range(40):
        await store.append(KEY, [NewEvent.of("note.made") for _ in range(100)])
    await cost()
    late, sent_late = await cost()
    early.pop("hello", None)
    late.pop("hello", None)
    assert early == late
    assert (early["update"], early["find"]) == (80, 0)
    assert abs(sent_late - sent_early) < 0.02 * sent_early


async def test_no_document_comes_near_the_servers_limit(store: MongoStore, raw: Raw) -> None:
    long = "é" * 250
    large = [note("x" * 60_000, id=f"{long}{n}", run=long, actor=long) for n in range(400)]
    wide = [
        note("x" * 900, id=f"w{long}{n}", run=long, actor=long, cause=long) for n in range(1000)
    ]
    huge = [note("x" * (20 << 20), id="huge")]
    for batch in (large, wide, huge, large[:1], wide[:20]):
        await store.append(KEY, batch, create=True)
    await store.append(KEY, [note("after")])
    sizes = [
        len(bson.encode(doc))
        for name in ("logs", "batches", "chunks")
        async for doc in raw[name].find({})
    ]
    assert max(sizes) < 4 << 20
    found = await read_all(store)
    assert [event.data for event in found[:-1]] == [e.data for e in (*large, *wide, *huge)]
    head = await raw.logs.find_one({})
    assert head is not None
    assert len(bson.encode(head)) < 2 * TAIL_BYTES
    assert [damage async for damage in store.verify()] == []
