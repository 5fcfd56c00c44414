"""Two at once on PostgreSQL, at the moments that matter, each brought about by its locks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast import Event, NewEvent, StoreUnavailable, key
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.database import Options
from holdfast.stores.sql import history

from .. import servers
from ..servers import faults

NOTE = "note.made"
KEY = key("s")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return servers.url("postgres", tmp_path)


@pytest.fixture
async def store(url: str) -> AsyncGenerator[PostgresStore, None]:
    async with holdfast.connect(url) as store:
        assert isinstance(store, PostgresStore)
        notes = [NewEvent.of(NOTE, {"n": n}) for n in range(3)]
        await store.append(KEY, notes, create=True)
        yield store


async def blocked(sql: Any, schema: str) -> None:
    """Wait until somebody waits for a lock on our tables."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND query LIKE '%' || $1 || '%'"
    )
    async with asyncio.timeout(60):
        # The database tells it only if asked.
        while await sql.fetchval(waiting, schema) == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_delete_that_waits_for_a_fork_removes_the_fork(
    url: str, store: PostgresStore
) -> None:
    first = NewEvent.of("thread.forked", {"parent": "main", "at": 2})
    async with faults.admin(servers.address("postgres")) as sql:
        async with store._database._link(None) as link, link.conn.transaction():
            await history.fork(store._tables(link), KEY, "side", at=2, first=first)
            deleting = asyncio.create_task(store.delete(KEY.scope))
            await blocked(sql, Options(url).schema)
        receipt = await deleting
    assert receipt.removed["logs"] == 2
    assert await store.row(key("s", "side")) is None
    assert [damage async for damage in store.verify()] == []


async def test_a_restore_that_was_taken_for_dead_says_so_and_leaves_nothing(
    url: str, store: PostgresStore
) -> None:
    async def slow() -> AsyncGenerator[Event, None]:
        for seq in range(1, 1_102):
            if seq == 1_101:  # the first thousand are written
                conn = await asyncpg.connect(url.partition("?")[0])
                await conn.execute(
                    f'UPDATE "{Options(url).schema}".logs SET until = -1 WHERE state = 1'
                )
                await conn.close()
                await store.delete(key("nobody").scope)  # sweeps
            yield Event(kind=NOTE, data=NewEvent.of(NOTE).data, id=f"e{seq}", seq=seq, at=1)

    with pytest.raises(StoreUnavailable, match="paused for too long"):
        await store.restore(key("restored"), slow())
    assert await store.row(key("restored")) is None
    await store.restore(key("restored"), store.read(KEY))
    assert [damage async for damage in store.verify()] == []


async def test_deleting_again_and_again_beside_a_base_leaves_what_a_fork_shares(
    store: PostgresStore,
) -> None:
    forked = NewEvent.of("thread.forked", {"parent": "main", "at": 2})
    await store.fork(KEY, "side", at=2, first=forked)
    await store.delete(KEY)
    await store.delete(key("nobody").scope)
    assert [event.seq async for event in store.read(key("s", "side"))] == [1, 2, 3]
    await store.delete(key("s", "side"))
    for table in ("logs", "events"):
        left = await store._database.run(
            lambda link, table=table: link.value(f"SELECT count(*) FROM hf.{table}")  # type: ignore[misc]
        )
        assert left == 0


async def test_the_callers_only_connection_is_not_held(url: str) -> None:
    async with asyncpg.create_pool(url.partition("?")[0], min_size=1, max_size=1) as pool:
        options = f"postgresql://?schema={Options(url).schema}"
        store = await PostgresStore.open(options, pool=pool)
        for n in range(3):
            await store.append(KEY, [NewEvent.of(NOTE, {"n": n})], create=True)
        following = store.follow(KEY, after=3)
        assert isinstance(await anext(following), holdfast.CaughtUp)
        await store.append(KEY, [NewEvent.of(NOTE)])
        assert isinstance(await asyncio.wait_for(anext(following), 60), Event)
        await following.aclose()
        await store.aclose()


async def test_a_closed_store_begins_nothing(store: PostgresStore) -> None:
    before = asyncio.all_tasks()
    await store.aclose()
    with pytest.raises(StoreUnavailable):
        await anext(store.follow(KEY))
    with pytest.raises(StoreUnavailable):
        await store.append(KEY, [NewEvent.of(NOTE)])
    assert asyncio.all_tasks() <= before


async def test_a_server_that_isolates_more_by_default_can_be_opened_by_many(url: str) -> None:
    conn = await asyncpg.connect(url.partition("?")[0])
    user = await conn.fetchval("SELECT current_user")
    await conn.close()
    async with faults.admin(servers.address("postgres")) as sql:
        await sql.execute(
            f"ALTER ROLE \"{user}\" SET default_transaction_isolation = 'repeatable read'"
        )
        try:
            stores = await asyncio.gather(*[PostgresStore.open(url) for _ in range(8)])
        finally:
            await sql.execute(f'ALTER ROLE "{user}" RESET default_transaction_isolation')
    await asyncio.gather(*[store.append(KEY, [NewEvent.of(NOTE)], create=True) for store in stores])
    assert (await stores[0].row(KEY)).head == 8  # type: ignore[union-attr]
    for store in stores:
        await store.aclose()
