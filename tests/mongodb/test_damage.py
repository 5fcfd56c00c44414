"""Damage in one document costs one event, is told, and can be mended."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import LogDamaged, NewEvent
from holdfast.stores.mongodb import MongoStore
from holdfast.testing.samples import KEY, note, read_all, row_of

from .conftest import Raw

LARGE = "x" * 100_000
COUNT = 40


async def grown(store: MongoStore) -> None:
    created = NewEvent.of("session.created", {"labels": ["vip"], "title": "T"}, id="c")
    await store.append(KEY, [created, note(LARGE, id="large")], create=True)
    for n in range(3, COUNT + 1):
        await store.append(KEY, [note(n)])
    await store._heads.aclose()


async def spoil_batch(raw: Raw) -> int:
    await raw.batches.update_one({"first": 1}, {"$set": {"events.3.data": b"jxxxx{}"}})
    return 4


async def spoil_kind(raw: Raw) -> int:
    await raw.batches.update_one({"first": 1}, {"$set": {"events.3.data": b"{}"}})
    return 4


async def spoil_tail(raw: Raw) -> int:
    head = await raw.logs.find_one({})
    assert head is not None
    await raw.logs.update_one({}, {"$set": {"tail.0.events.0.data": b"jxxxxtorn"}})
    return int(head["tail"][0]["first"])


async def spoil_chunk(raw: Raw) -> int:
    await raw.chunks.update_one({}, {"$set": {"parts.0": b"j"}})
    return 2


async def drop_chunk(raw: Raw) -> int:
    await raw.chunks.delete_many({})
    return 2


@pytest.mark.parametrize("spoil", [spoil_batch, spoil_kind, spoil_tail, spoil_chunk, drop_chunk])
async def test_one_event_is_lost_and_its_neighbours_are_not(
    store: MongoStore, other: MongoStore, raw: Raw, spoil: Any
) -> None:
    await grown(store)
    lost = await spoil(raw)
    with pytest.raises(LogDamaged) as told:
        await read_all(other)
    assert told.value.seq == lost
    assert [event.seq for event in await read_all(other, after=lost)] == list(
        range(lost + 1, COUNT + 1)
    )
    found = [damage async for damage in other.verify()]
    assert [(damage.problem, damage.seq) for damage in found] == [("unreadable", lost)]
    assert [damage.repaired async for damage in other.verify(repair=True)] == [True]
    assert [damage async for damage in other.verify()] == []
    assert (await read_all(other))[lost - 1].json() == {"erased": "damaged"}
    assert (await store.append(KEY, [note("on")])).seqs == (COUNT + 1,)


@pytest.mark.parity("user-demand", 42)
async def test_a_missing_batch_is_told_and_hides_nothing_behind_it(
    store: MongoStore, raw: Raw
) -> None:
    await grown(store)
    gone = await raw.batches.find_one_and_delete({"first": {"$gt": 1}}, sort=[("first", 1)])
    assert gone is not None
    first, last = gone["first"], gone["last"]
    with pytest.raises(LogDamaged) as told:
        await read_all(store)
    assert told.value.seq == first
    with pytest.raises(LogDamaged) as told:
        await read_all(store, reverse=True)
    assert told.value.seq == last
    assert [e.seq for e in await read_all(store, after=last)] == list(range(last + 1, COUNT + 1))
    (damage,) = [damage async for damage in store.verify()]
    assert (damage.problem, damage.seq, damage.detail) == ("missing", first, f"up to event {last}")


@pytest.mark.parametrize(
    "change",
    [
        {"$set": {"doc": b"{"}},
        {"$set": {"doc": b"\xff\xfe"}},
        {"$unset": {"doc": ""}},
        {"$set": {"agent": "nobody"}},
        {"$unset": {"terms": ""}},
        {"$set": {"waits": 1, "waits_to": 1}},
    ],
    ids=str,
)
async def test_a_row_is_made_again_from_its_log(
    store: MongoStore, other: MongoStore, raw: Raw, change: dict[str, Any]
) -> None:
    await grown(store)
    before = await row_of(store)
    await raw.logs.update_one({}, {**change, "$inc": {"version": 1}})
    assert (await row_of(other)).head == COUNT
    (damage,) = [damage async for damage in other.verify(repair=True)]
    assert (damage.problem, damage.repaired) == ("row", True)
    assert await row_of(other) == before
    assert [damage async for damage in other.verify()] == []
