"""Leases that travel with appends, guarded deletes, and lookups by id and key: decided on heads
that are not current, after lost replies, beside older programs, and always by an index."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pymongo.errors import AutoReconnect

from holdfast import Appended, HeadMoved, LeaseHeld, Store, key
from holdfast.store import Acquire
from holdfast.stores.mongodb import MongoStore
from holdfast.testing.samples import KEY, SIDE, begin, begin_driven, note, rejected, seqs

from .conftest import Raw
from .test_tails import MANY, grown

ME = Acquire("me", 60)


def lose_a_reply(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the reply to the next change of a head not arrive."""
    swap = store._heads.swap

    async def lost(*args: Any) -> bool:
        monkeypatch.setattr(store._heads, "swap", swap)
        assert await swap(*args)
        raise AutoReconnect("the reply is lost")

    monkeypatch.setattr(store._heads, "swap", lost)


# Leases


async def test_the_lease_of_another_process_counts(store: MongoStore, other: MongoStore) -> None:
    await begin(store)
    lease = await other.acquire(KEY, "other")
    await rejected(LeaseHeld, store.append(KEY, [note(2)], acquire=ME))
    assert await seqs(store) == [1]
    await other.release(lease)
    mine = (await store.append(KEY, [note(2)], acquire=ME)).lease
    assert mine is not None
    await rejected(LeaseHeld, other.append(KEY, [note(3)], acquire=Acquire("other", 60)))
    await store.append(KEY, [note(3)], release=mine)
    assert (await other.append(KEY, [note(4)], acquire=Acquire("other", 60))).lease is not None


async def test_a_lost_reply_does_not_lose_the_lease(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    lose_a_reply(store, monkeypatch)
    done = await store.append(KEY, [note(2)], expected=1, acquire=ME)
    assert done.lease is not None
    lose_a_reply(store, monkeypatch)
    gone = await store.append(KEY, [note(3)], release=done.lease)
    assert (gone.seqs, gone.lease) == ((3,), None)
    lose_a_reply(store, monkeypatch)
    lease = await store.acquire(KEY, "me", steal="it hangs")
    assert lease.reason == "it hangs"
    assert (await store.append(KEY, [note(4)], fence=lease)).head == 4


async def test_an_older_program_takes_a_lease_and_its_mark(store: MongoStore, raw: Raw) -> None:
    await begin(store)
    lease = (await store.append(KEY, [note(2)], acquire=ME)).lease
    assert lease is not None
    taken = {"token": lease.token + 1, "owner": "me", "by": "an id of its own"}
    await raw.logs.update_one({}, {"$set": taken, "$inc": {"version": 1}})
    assert await store.append(KEY, [note(2)], acquire=ME) == Appended((2,), 2, 0)
    await raw.logs.update_one({}, {"$unset": {"by": "", "renewed": ""}, "$inc": {"version": 1}})
    assert await store.append(KEY, [note(2)], acquire=ME) == Appended((2,), 2, 0)


# Guarded deletes


@pytest.mark.parametrize("target", [KEY, KEY.scope])
async def test_a_delete_from_a_remembered_head_deletes_nothing(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch, target: Any
) -> None:
    await begin(store)
    await other.append(KEY, [note(2)])
    refused = await rejected(HeadMoved, store.delete(target, expected=1))
    assert (refused.expected, refused.head) == (1, 2)
    lose_a_reply(store, monkeypatch)
    assert (await store.delete(target, expected=2)).removed["logs"] == 1
    assert await other.row(KEY) is None


async def test_a_log_that_begins_during_a_guarded_delete_stays(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    await store.fork(KEY, "side", at=1, first=note("fork"))
    settle = store._heads.settle

    async def late(*args: Any) -> Any:
        done = await settle(*args)
        await other.append(KEY, [note("new")], create=True)
        return done

    monkeypatch.setattr(store._heads, "settle", late)
    await store.delete(KEY.scope, expected=1)
    assert [row and row.head for row in await store.rows([KEY, SIDE])] == [1, None]


# Lookups


async def test_an_event_is_located_wherever_it_moved(store: MongoStore) -> None:
    await grown(store)
    for n in range(1, MANY + 1):
        assert await store.locate("main", f"note-{n}") == [KEY]
    await store.fork(KEY, "side", at=MANY // 2, first=note("fork"))
    await store.fork(SIDE, "leaf", at=MANY // 2 + 1, first=note("leaf"))
    await store.delete(KEY)
    forks = [key("s", "leaf"), SIDE]
    assert await store.locate("main", "note-1") == forks
    assert await store.locate("main", f"note-{MANY // 2}") == forks
    assert await store.locate("main", f"note-{MANY // 2 + 1}") == []
    assert await store.locate("main", "note-fork") == [SIDE]


@pytest.mark.parametrize(
    ("lookup", "queries"),
    [
        (lambda store: store.locate("main", "note-70"), 3),
        (lambda store: store.locate("main", "note-in tail"), 2),
        (lambda store: store.locate("main", "unknown"), 2),
        (lambda store: store.rows([KEY, SIDE, key("s2"), key("s3", tenant="other")]), 1),
        (lambda store: store.seqs(KEY, ["note-70", "unknown"]), 2),
    ],
)
async def test_a_lookup_examines_only_what_it_returns(
    store: MongoStore, raw: Raw, lookup: Callable[[Store], Awaitable[Any]], queries: int
) -> None:
    await grown(store)
    for n in range(20):
        await store.append(key(f"s{n}"), [note(n, id=f"other-{n}")], create=True)
    await store.append(key("t"), [note("in tail")], create=True)
    await raw.command("profile", 2)
    await lookup(store)
    await raw.command("profile", 0)
    made = await raw["system.profile"].find({"op": "query"}).to_list()
    assert len(made) == queries
    for query in made:
        assert "COLLSCAN" not in query["planSummary"]
        assert query["docsExamined"] == query["nreturned"]


async def test_a_database_of_an_older_program_gets_the_indexes(
    url: str, store: MongoStore, raw: Raw
) -> None:
    await begin_driven(store)
    await raw.logs.drop_index("tail_ids")
    await raw.batches.drop_index("tenant_ids")
    await raw.meta.update_one({"_id": "holdfast"}, {"$unset": {"indexes": ""}})
    newer = await MongoStore.open(url)
    assert await newer.locate("main", "note-1") == [KEY]
    await newer.aclose()
    mark = await raw.meta.find_one({"_id": "holdfast"})
    assert mark == {"_id": "holdfast", "version": 1, "indexes": 1}  # an older program opens it
