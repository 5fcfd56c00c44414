"""An event that is missing is reported before anything behind it is read, whatever else is damaged
behind it, in every store that keeps bytes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from pymongo import AsyncMongoClient

import holdfast
from holdfast import CaughtUp, Event, Key, LogDamaged, NewEvent, Store, Vault, key
from holdfast.stores.mongodb.event_records import batch_id
from tests.servers import recycled
from tests.servers.faults import schema_of

KINDS = ("sqlite", "file", "postgres", "mongodb")
LOG, FORK = key("s"), key("s", "fork")
MAIN = "session = 's' AND thread = 'main'"
COUNT, SHARED = 12, 10

Batch = dict[str, Any]


class Place:
    """A store, and a way to reach the events of its first log past it."""

    def __init__(self, kind: str, url: str, vault: Vault | None) -> None:
        self.kind, self.url, self._vault = kind, url, vault

    def opened(self) -> holdfast.stores.Connecting:
        return holdfast.connect(self.url, vault=self._vault)

    async def harm(self, *, missing: tuple[int, ...], damaged: tuple[int, ...]) -> None:
        """Remove some events of the log, and make others unreadable. Nobody has it open."""
        if self.kind == "mongodb":
            await self._harm_mongo(missing, damaged)
        elif self.kind == "postgres":
            await self._harm_postgres(missing, damaged)
        else:
            name = self.url.partition(":")[2]
            path = Path(name) / "index.db" if self.kind == "file" else Path(name)
            await asyncio.to_thread(_harm_sqlite, path, missing, damaged)

    async def _harm_postgres(self, missing: tuple[int, ...], damaged: tuple[int, ...]) -> None:
        conn = await asyncpg.connect(self.url.partition("?")[0])
        try:
            await conn.execute(f'SET search_path TO "{schema_of(self.url)}"')
            log = await conn.fetchval(f"SELECT id FROM logs WHERE {MAIN}")
            await conn.execute("DELETE FROM events WHERE log = $1 AND seq = ANY($2)", log, missing)
            change = "UPDATE events SET data = '\\x00' WHERE log = $1 AND seq = ANY($2)"
            await conn.execute(change, log, damaged)
        finally:
            await conn.close()

    async def _harm_mongo(self, missing: tuple[int, ...], damaged: tuple[int, ...]) -> None:
        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(self.url)
        async with client:
            database = client[urlsplit(self.url).path.lstrip("/")]
            head = await database.logs.find_one({"session": LOG.session, "thread": LOG.thread})
            assert head is not None
            tail = _harmed(head.get("tail", []), missing, damaged)
            change = {"$set": {"tail": tail}, "$inc": {"version": 1}}
            await database.logs.update_one({"_id": head["_id"]}, change)
            # What a fork shares has left the tail.
            rolled = await database.batches.find({"log": head["_id"]}).to_list()
            await database.batches.delete_many({"log": head["_id"]})
            if rolled:
                await database.batches.insert_many(
                    [
                        {**batch, "_id": batch_id(head["_id"], batch["first"])}
                        for batch in _harmed(rolled, missing, damaged)
                    ]
                )


def _harmed(
    batches: list[Batch], missing: tuple[int, ...], damaged: tuple[int, ...]
) -> list[Batch]:
    """Batches of one event each, without those that are missing."""
    return [
        {**batch, "first": seq, "last": seq, "ids": [id], "events": [event]}
        for batch in batches
        for seq, (id, found) in enumerate(
            zip(batch["ids"], batch["events"], strict=True), int(batch["first"])
        )
        if seq not in missing
        for event in [{**found, "data": b"\0"} if seq in damaged else found]
    ]


def _harm_sqlite(path: Path, missing: tuple[int, ...], damaged: tuple[int, ...]) -> None:
    with closing(sqlite3.connect(path)) as conn, conn:
        (log,) = conn.execute(f"SELECT id FROM logs WHERE {MAIN}").fetchone()
        for seq in missing:
            conn.execute("DELETE FROM events WHERE log = ? AND seq = ?", (log, seq))
        for seq in damaged:
            conn.execute("UPDATE events SET data = x'00' WHERE log = ? AND seq = ?", (log, seq))


PLACES = [(kind, sealed) for sealed in (False, True) for kind in KINDS]


@pytest.fixture(params=PLACES, ids=lambda case: f"{case[0]}{' vault' * case[1]}")
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Place, None]:
    kind, sealed = request.param
    vault = Vault([Vault.new_key("k")]) if sealed else None
    async with _url(kind, tmp_path) as url:
        yield Place(kind, url, vault)


@asynccontextmanager
async def _url(kind: str, folder: Path) -> AsyncGenerator[str, None]:
    if kind in ("sqlite", "file"):
        yield f"{kind}:{folder / 'store'}"
    else:
        async with recycled.empty(kind) as url:
            yield url


async def prepare(place: Place) -> None:
    async with place.opened() as store:
        for n in range(COUNT):
            await store.append(LOG, [NewEvent.of("note.made", {"n": n})], create=not n)
        await store.fork(LOG, "fork", at=SHARED, first=NewEvent.of("note.made"))


async def read_until_damage(store: Store, log: Key, **bounds: Any) -> tuple[list[int], int | None]:
    """The numbers that are read, and the one that is reported."""
    seqs: list[int] = []
    try:
        async for event in store.read(log, **bounds):
            seqs.append(event.seq)
    except LogDamaged as error:
        return seqs, error.seq
    return seqs, None


@pytest.mark.parametrize("damaged", [8, 6], ids=["behind", "right behind"])
async def test_a_missing_event_is_reported_before_damage_behind_it(
    place: Place, damaged: int
) -> None:
    await prepare(place)
    await place.harm(missing=(5,), damaged=(damaged,))
    async with place.opened() as store:
        assert await read_until_damage(store, LOG) == ([1, 2, 3, 4], 5)
        between = list(range(6, damaged))
        assert await read_until_damage(store, LOG, after=5) == (between, damaged)
        assert await read_until_damage(store, LOG, after=3, limit=4) == ([4], 5)


async def test_a_missing_event_is_reported_when_read_backwards(place: Place) -> None:
    await prepare(place)
    await place.harm(missing=(8,), damaged=(5,))
    async with place.opened() as store:
        assert await read_until_damage(store, LOG, reverse=True) == ([12, 11, 10, 9], 8)
        found = await read_until_damage(store, LOG, before=8, reverse=True)
        assert found == ([7, 6], 5)


async def test_a_missing_event_between_damage_and_the_last_one_read(place: Place) -> None:
    await prepare(place)
    await place.harm(missing=(4, 5, 6), damaged=(7,))
    async with place.opened() as store:
        assert await read_until_damage(store, LOG) == ([1, 2, 3], 4)
        assert await read_until_damage(store, LOG, after=6) == ([], 7)


async def test_a_missing_event_that_a_fork_shares(place: Place) -> None:
    await prepare(place)
    await place.harm(missing=(5,), damaged=(8,))
    async with place.opened() as store:
        assert await read_until_damage(store, FORK) == ([1, 2, 3, 4], 5)
        backwards = await read_until_damage(store, FORK, reverse=True)
        assert backwards == ([11, 10, 9], 8)


async def test_a_follower_is_told_of_a_missing_event(place: Place) -> None:
    await prepare(place)
    await place.harm(missing=(5,), damaged=(8,))
    async with place.opened() as store:
        seen: list[Event | CaughtUp] = []
        async with aclosing(store.follow(LOG)) as events:
            for _ in range(4):
                seen.append(await anext(events))
            with pytest.raises(LogDamaged) as caught:
                await anext(events)
        assert [event.seq for event in seen if isinstance(event, Event)] == [1, 2, 3, 4]
        assert caught.value.seq == 5
