"""Leases that travel with an append on PostgreSQL: stale copies, lost replies, and programs of the
version before on the same log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

import holdfast
from holdfast import LeaseHeld, LeaseLost, NewEvent, key
from holdfast.log import catalog
from holdfast.store import Acquire
from holdfast.stores.frames import packed
from holdfast.stores.hash_chain import seals
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.columns import columns
from holdfast.stores.postgres.database import Link, Options
from holdfast.stores.postgres.remove import Hide
from holdfast.stores.rules import extended

from .. import servers

NOTE = "note.made"
KEY = key("s")
ME = Acquire("me", 600)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return servers.url("postgres", tmp_path)


@pytest.fixture
async def store(url: str) -> AsyncGenerator[PostgresStore, None]:
    async with holdfast.connect(url) as store:
        assert isinstance(store, PostgresStore)
        await store.append(KEY, [note("first")], create=True)
        yield store


def note(id: str) -> NewEvent:
    return NewEvent.of(NOTE, id=id)


async def ids(store: holdfast.Store) -> list[str]:
    return [event.id async for event in store.read(KEY)]


class OlderProgram:
    """A program of the version before: it appends with `append_2` and does not know marks."""

    def __init__(self, conn: Any, schema: str) -> None:
        self._conn = conn
        self._schema = schema
        self.version: int | None = None
        self._row: catalog.Row | None = None

    async def look(self) -> None:
        """Remember the log as it is."""
        found = await self._conn.fetchrow(f'SELECT version, doc FROM "{self._schema}".logs')
        self.version = found["version"]
        self._row = msgspec.json.decode(found["doc"], type=catalog.Row)

    async def append(self, id: str) -> int:
        """Append to the log as it is remembered; return the status."""
        assert self._row is not None
        at = self._row.last + 1
        event = note(id).numbered(self._row.head + 1, at)
        plan = extended(self._row, [event], seals([event]), [catalog.project(event)])
        number = await self._conn.fetchval(f'SELECT id FROM "{self._schema}".logs')
        values: list[Any] = [
            *(KEY.tenant, KEY.session, KEY.thread, number, self.version, None),
            *([event.id], event.seq, at, [event.kind], [event.v], None, None, None),
            *(plan.hashes, [packed(event.data)], plan.links),
            *columns(plan.row),
            msgspec.json.encode(plan.row),
            *[None] * 8,
        ]
        call = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        answer = await self._conn.fetchrow(
            f'SELECT * FROM "{self._schema}".append_2({call})', *values
        )
        status: int = answer["status"]
        return status

    async def take_lease(self, token: int) -> None:
        """Write a lease as that version does."""
        await self._conn.execute(
            f'UPDATE "{self._schema}".logs SET version = version + 1, token = $1,'
            " owner = 'older', since = $2, until = $2 + 600000::bigint, renewed = $2",
            token,
            await self._conn.fetchval("SELECT (extract(epoch FROM now()) * 1000)::bigint"),
        )


@pytest.fixture
async def older(url: str, store: PostgresStore) -> AsyncGenerator[OlderProgram, None]:
    conn = await asyncpg.connect(url.partition("?")[0])
    yield OlderProgram(conn, Options(url).schema)
    await conn.close()


async def test_old_and_new_programs_append_to_one_log(
    store: PostgresStore, older: OlderProgram
) -> None:
    await older.look()
    assert await older.append("second") == 0
    lease = (await store.append(KEY, [note("third")], acquire=ME)).lease
    assert lease is not None
    assert await older.append("lost") == 1  # what it remembers is out of date
    await older.look()
    assert await older.append("fourth") == 0
    await store.append(KEY, [note("fifth")], release=lease)
    assert await ids(store) == ["first", "second", "third", "fourth", "fifth"]
    assert [damage async for damage in store.verify()] == []


async def test_a_lease_of_an_old_program_is_seen_and_brings_no_old_mark_back(
    store: PostgresStore, older: OlderProgram
) -> None:
    lease = (await store.append(KEY, [note("second")], acquire=ME)).lease
    assert lease is not None
    await older.take_lease(lease.token + 1)
    with pytest.raises(LeaseHeld) as held:
        await store.append(KEY, [note("third")], acquire=ME)
    assert held.value.owner == "older"
    assert (await store.append(KEY, [note("second")], acquire=ME)).lease is None
    with pytest.raises(LeaseLost):
        await store.append(KEY, [note("third")], release=lease)
    assert await ids(store) == ["first", "second"]


async def test_an_append_decided_on_a_stale_lease_is_refused(
    url: str, store: PostgresStore
) -> None:
    async with holdfast.connect(url) as other:
        theirs = await other.acquire(KEY, "other", ttl=600)
        with pytest.raises(LeaseHeld) as held:
            await store.append(KEY, [note("second")], acquire=ME)
        assert held.value.owner == "other"
        assert await ids(store) == ["first"]
        await other.release(theirs)
        lease = (await store.append(KEY, [note("second")], acquire=ME)).lease
        assert lease is not None
        assert lease.token > theirs.token
        await other.acquire(KEY, "thief", steal="it hangs")
        with pytest.raises(LeaseLost):
            await store.append(KEY, [note("third")], release=lease)
    assert await ids(store) == ["first", "second"]


async def test_an_append_whose_reply_is_lost_keeps_its_lease(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, lost = Link.call, [1]

    async def losing(link: Link, sql: str, *values: Any) -> Any:
        answer = await call(link, sql, *values)
        if lost:
            lost.clear()
            raise ConnectionResetError
        return answer

    monkeypatch.setattr(Link, "call", losing)
    lease = (await store.append(KEY, [note("second")], acquire=ME)).lease
    assert lease is not None
    lost.append(1)
    done = await store.append(KEY, [note("third")], release=lease)
    assert (done.head, done.lease) == (3, None)
    assert (await store.acquire(KEY, "other")).token > lease.token


@pytest.mark.parametrize("target", [KEY, KEY.scope])
async def test_a_guarded_delete_whose_reply_is_lost_can_be_repeated(
    store: PostgresStore, target: holdfast.Scope
) -> None:
    hide = Hide(target, None, 1)
    removed, _ = await store._run(hide)
    assert removed["logs"] == 1
    assert (await store._run(hide))[1] == []


async def test_ids_are_looked_up_by_their_index_before_tables_are_analysed(
    url: str, store: PostgresStore
) -> None:
    """Otherwise each append reads the whole log."""
    link = await asyncpg.connect(url.partition("?")[0])
    await link.execute(f'ALTER TABLE "{Options(url).schema}".events SET (autovacuum_enabled = off)')
    for _ in range(20):
        await store.append(KEY, [NewEvent.of(NOTE) for _ in range(100)])
    await store.aclose()  # a connection that ends reports what it has counted
    read = await link.fetchval(
        "SELECT idx_tup_read FROM pg_stat_user_indexes"
        " WHERE schemaname = $1 AND indexrelname = 'events_pkey'",
        Options(url).schema,
    )
    await link.close()
    assert read == 0
