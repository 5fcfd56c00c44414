"""Deletes that are cut short, what calls that died left behind, and erases and restores that others
cross."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import count
from typing import Any

import bson
import pytest

from holdfast import BlobNotFound, Event, NewEvent, Scope, SessionNotFound, StoreUnavailable, key
from holdfast.log.catalog import Parent
from holdfast.stores.mongodb import MongoStore, history, remove
from holdfast.stores.mongodb.history import Fork
from holdfast.stores.mongodb.payloads import put_chunks
from holdfast.stores.mongodb.upkeep import STALE_MS
from holdfast.stores.paging import BATCH_EVENTS
from holdfast.testing.samples import (
    KEY,
    SIDE,
    begin,
    given,
    note,
    notes,
    past,
    read_all,
    row_of,
    seqs,
    snapshot,
)

from .conftest import Raw

LARGE = "x" * 100_000


async def left(raw: Raw) -> dict[str, int]:
    """How many documents each collection has."""
    names = await raw.list_collection_names()
    counts = {name: await raw[name].count_documents({}) for name in names if name != "meta"}
    return {name: count for name, count in counts.items() if count}


async def full(store: MongoStore) -> None:
    """A session with something of every sort."""
    await begin(store, count=3)
    for n in range(40):
        await store.append(KEY, [note(LARGE, id=f"large-{n}") if n % 8 == 0 else note(f"n{n}")])
    lease = await store.acquire(KEY, "driver")
    await store.put_draft(KEY, "m", 0, "text", fence=lease)
    await store.save_snapshot(KEY, snapshot(lease.log, 3), fence=lease)
    await store.put_blob(KEY.scope, bytes(3 << 20))
    await store.claim("main", "name", KEY.scope)


async def test_a_delete_leaves_nothing(store: MongoStore, raw: Raw) -> None:
    await full(store)
    await store.delete(KEY.scope)
    assert await left(raw) == {}


@pytest.mark.parity("user-demand", 52)
@pytest.mark.parametrize("finisher", ["delete", "purge", "begin"])
async def test_a_delete_that_was_cut_is_hidden_and_finished(
    store: MongoStore, other: MongoStore, raw: Raw, finisher: str
) -> None:
    await full(store)
    (blob,) = await store.blobs(KEY.scope)
    await remove.Delete(store._db, store._heads, KEY.scope, None)._hide()
    assert await other.row(KEY) is None
    with pytest.raises(SessionNotFound):
        await read_all(store)
    with pytest.raises(SessionNotFound):
        await store.append(KEY, [note("late")])
    with pytest.raises(BlobNotFound):
        await other.get_blob(KEY.scope, blob)
    if finisher == "delete":
        await other.delete(KEY.scope)
    elif finisher == "purge":
        await other.purge()
    else:
        await begin(other)
        assert await other.blobs(KEY.scope) == []
        heir = Scope("main", "heir")
        assert await other.claim("main", "name", heir) == heir
        await other.unclaim("main", "name", heir)
        await other.delete(KEY.scope)
    assert await left(raw) == {}


async def test_what_forks_share_stays_and_the_rest_goes(store: MongoStore, raw: Raw) -> None:
    await begin(store, count=3)
    for n in range(30):
        await store.append(KEY, [note(LARGE, id=f"large-{n}")])
    await store.fork(KEY, "side", at=5, first=note("fork"))
    before = await read_all(store, SIDE)
    receipt = await store.delete(KEY)
    assert any("side" in remains.what for remains in receipt.remains)
    assert await read_all(store, SIDE) == before
    held = [doc async for doc in raw.batches.find({})]
    assert max(doc["last"] for doc in held) == 5
    bytes_left = [len(part) async for doc in raw.chunks.find({}) for part in doc["parts"]]
    assert sum(bytes_left) < 3 * len(LARGE)
    await store.delete(SIDE)
    assert await left(raw) == {}


async def test_a_fork_of_a_session_that_goes_fails(store: MongoStore, raw: Raw) -> None:
    await begin(store, count=3)
    fork = Fork(store._db, store._heads, store._project, KEY, "side", 2, note("fork"))
    assert await store._heads.settle(KEY, fork._attempt) is not None
    await store.delete(KEY.scope)
    with pytest.raises(SessionNotFound):
        await fork._show()
    assert await store.row(SIDE) is None
    await store.purge()
    assert await left(raw) == {}


async def test_purge_removes_what_nothing_points_to(store: MongoStore, raw: Raw) -> None:
    await full(store)
    before, blobs = await read_all(store), await store.blobs(KEY.scope)
    log = (await store._heads.existing(KEY)).log
    kept = await left(raw)
    for home in (log, None, "a log that is gone"):
        await put_chunks(store._db, KEY.scope, home, f"write of {home}", [[b"x"], [b"y"]])
    await raw.batches.insert_one(
        {"_id": "gone/1", "tenant": "main", "session": "s", "log": "gone", "ids": [], "last": 1}
    )
    await store.purge()
    assert (await left(raw))["chunks"] == kept["chunks"] + 6  # they may be somebody's, still
    await raw.chunks.update_many({}, {"$inc": {"at": -2 * STALE_MS}})
    await store.purge()
    assert await left(raw) == kept
    assert await read_all(store) == before
    assert [await store.get_blob(KEY.scope, ref) for ref in blobs] == [bytes(3 << 20)]


async def test_an_erased_payload_is_nowhere(store: MongoStore, raw: Raw) -> None:
    secret = "the secret " * 10_000
    await begin(store)
    await store.append(KEY, [note(secret, id="large"), note("the secret", id="small")])
    receipt = await store.erase(KEY, [2, 3], reason="asked")
    assert receipt.remains
    for name in ("logs", "batches", "chunks"):
        async for doc in raw[name].find({}):
            assert b"the secret" not in bson.encode(doc)
    assert await seqs(store) == [1, 2, 3]


def held(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> tuple[asyncio.Event, asyncio.Event]:
    """Let the first call of a function of the store stop: at `reached`, until `go`. It stops
    behind its work when it gives a row, and before it otherwise."""
    reached, go = asyncio.Event(), asyncio.Event()
    work = getattr(module, name)

    async def first(*args: Any) -> Any:
        monkeypatch.setattr(module, name, work)
        done = await work(*args) if name == "projected" else None
        reached.set()
        await go.wait()
        return done or await work(*args)

    monkeypatch.setattr(module, name, first)
    return reached, go


async def test_two_erases_at_once_bring_nothing_back(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = NewEvent.of("session.created", {"title": "SECRET"})
    message = NewEvent.of("message.received", {"text": "SECRET"})
    await store.append(KEY, [title, message], create=True)
    reached, go = held(monkeypatch, history, "projected")
    first = asyncio.create_task(store.erase(KEY, [1], reason="asked"))
    await reached.wait()  # its row has the message yet
    await other.erase(KEY, [2], reason="asked")
    go.set()
    await first
    row = await row_of(store)
    assert (row.title, row.first_message) == (None, None)
    assert [damage async for damage in store.verify(KEY)] == []


async def test_a_claim_made_while_the_session_is_deleted_is_kept(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count(1_000)
    store = await MongoStore.open(url, clock=lambda: next(ticks))
    await begin(store)
    await store.claim("main", "name", KEY.scope)
    reached, go = held(monkeypatch, remove, "finish")
    deleting = asyncio.create_task(store.delete(KEY.scope))
    await reached.wait()
    assert await store.claim("main", "name", KEY.scope) == KEY.scope
    await begin(store)
    go.set()
    await deleting
    assert await store.claims(KEY.scope) == ["name"]
    await store.aclose()


async def test_a_restore_goes_under_the_parent_that_is_there(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store, count=2)
    swap = store._heads.swap

    async def late(*args: Any) -> bool:
        monkeypatch.setattr(store._heads, "swap", swap)
        await other.delete(KEY)
        await other.append(KEY, [note("a"), note("b")], create=True)
        return await swap(*args)

    await store.append(KEY, [note("rest")])
    await store.fork(KEY, "settles", at=3, first=note("fork"))  # no more swaps but the last
    await other.delete(key("s", "settles"))
    monkeypatch.setattr(store._heads, "swap", late)
    await store.restore(SIDE, given([past(3)]), parent=Parent("main", 2))
    assert [event.id for event in await read_all(other, SIDE)] == [*notes("a", "b"), "past-3"]
    assert [damage async for damage in store.verify(KEY.scope)] == []


@pytest.mark.parametrize("events", [1, BATCH_EVENTS])
async def test_a_restore_that_was_silent_for_too_long_says_so(
    store: MongoStore, other: MongoStore, raw: Raw, events: int
) -> None:
    async def slowly() -> AsyncGenerator[Event, None]:
        for n in range(1, events + 1):
            yield past(n)
        await raw.logs.update_many({}, {"$set": {"until": 1}})
        await other.purge()

    with pytest.raises(StoreUnavailable, match="paused for too long"):
        await store.restore(KEY, slowly())
    await store.restore(KEY, given([past(1)]))
    assert await seqs(other) == [1]


async def test_an_outage_does_not_take_the_place_of_what_ended_a_restore(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: Any) -> None:
        raise StoreUnavailable(problem="away")

    async def broken() -> AsyncGenerator[Event, None]:
        yield past(1)
        monkeypatch.setattr(history, "discard", away)
        raise ValueError("the real one")

    with pytest.raises(ValueError, match="the real one"):
        await store.restore(KEY, broken())
