"""The index of texts in the databases: what a kill, a pause, a drop, a backup or another version
leaves never shows in a search, and removed words leave the tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import bson
import pytest
from pymongo import AsyncMongoClient

import holdfast
from holdfast import NewEvent, connect, key
from holdfast.log.catalog import SearchQuery
from holdfast.log.search import EventText
from holdfast.stores.mongodb import MongoStore
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.database import Options
from holdfast.stores.search import TextSearch, indexer
from holdfast.stores.search.index import terms_of
from holdfast.testing.search_contract import find, places, said
from tests import servers
from tests.search.test_index import WORD, Killed, Mortal, removed
from tests.servers import postgres, recycled

KINDS = ("postgres", "mongodb")
LIGATURE = "\ufdfa"
AnyStore = PostgresStore | MongoStore


@pytest.fixture(autouse=True)
def interrupted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that did not end counts as interrupted at once, and so does a claim."""
    monkeypatch.setattr(indexer, "STALE_MS", -1_000)
    monkeypatch.setattr(indexer, "CLAIMED", 0.0)


@pytest.fixture(params=KINDS)
async def url(request: pytest.FixtureRequest) -> AsyncGenerator[str, None]:
    async with recycled.empty(request.param) as url:
        yield url


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[AnyStore, None]:
    async with connect(url) as store:
        assert isinstance(store, AnyStore)
        yield store


def use(store: AnyStore, index: Any) -> None:
    """Let a store use another index."""
    changes = store._texts._indexer._changes
    store._texts = TextSearch(store, index, changes)


@asynccontextmanager
async def direct(url: str) -> AsyncGenerator[Any, None]:
    """A connection to PostgreSQL whose statements find the store's tables."""
    conn = await asyncpg.connect(
        url.partition("?")[0], server_settings={"search_path": Options(url).schema}
    )
    yield conn
    await conn.close()


class Paused:
    """An index whose indexer waits before it writes what it read."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self.ready, self.resume = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    async def add(self, batch: Any) -> int:
        self.ready.set()
        await self.resume.wait()
        added: int = await self._index.add(batch)
        return added


async def fork_of_a(store: AnyStore, at: int) -> None:
    first = NewEvent.of("thread.forked", {"parent": "main", "at": at})
    await store.fork(key("a"), "fork", at=at, first=first)


async def erase_in_parent(store: AnyStore) -> None:
    await store.erase(key("a"), [1], reason="asked to")


async def delete_parent_and_erase(store: AnyStore) -> None:
    await store.delete(key("a"))
    await store.erase(key("a", "fork"), [1], reason="asked to")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 8))
async def test_a_killed_indexer_loses_nothing(url: str, after: bool, step: int) -> None:
    async with opened(url) as store:
        for session in "abc":
            await said(store, session, "a heron", "a pelican")
        whole = store._texts._index
        await whole.create()
        use(store, Mortal(whole, step, after=after))
        with suppress(Killed):
            assert await store._texts._indexer.catch_up()
        use(store, whole)
        assert len(await find(store, "heron")) == 3
        assert len(await find(store, "a")) == 6


@pytest.mark.parametrize(
    "remove",
    [
        lambda store: removed(store, "delete"),
        lambda store: removed(store, "erase"),
        erase_in_parent,
        delete_parent_and_erase,
    ],
)
async def test_an_indexer_does_not_write_what_was_removed_meanwhile(
    url: str, remove: Callable[[AnyStore], Awaitable[None]]
) -> None:
    async with opened(url) as store, opened(url) as other:
        await said(store, "a", f"a {WORD} flew")
        await fork_of_a(store, 1)
        await said(store, "b", "a heron flew")
        paused = Paused(other._texts._index)
        await paused.create()
        use(other, paused)
        indexing = asyncio.create_task(other._texts._indexer.catch_up())
        await paused.ready.wait()
        await remove(store)
        paused.resume.set()
        await indexing
        assert await places_of(url) == []
        assert places(await find(store, "flew")) == [("b", "main", 1)]
        assert await find(other, WORD) == []


async def places_of(url: str, word: str = WORD) -> list[str]:
    """The tables or collections in which a word is anywhere."""
    if url.startswith("mongodb"):
        return await collections_of(url, word)
    async with direct(url) as conn:
        tables = await conn.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = current_schema::regnamespace"
        )
        found = []
        for (name,) in tables:
            for record in await conn.fetch(f'SELECT * FROM "{name}"'):
                if any(word.encode() in _bytes(value) for value in record):
                    found.append(name)
        return sorted(set(found))


async def collections_of(url: str, word: str) -> list[str]:
    async with mongo(url) as database:
        return sorted(
            [
                name
                for name in await database.list_collection_names()
                if any([word.encode() in bson.encode(doc) async for doc in database[name].find()])
            ]
        )


@asynccontextmanager
async def mongo(url: str) -> AsyncGenerator[Any, None]:
    """A MongoDB database past the store."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    yield client[urlsplit(url).path.lstrip("/")]
    await client.close()


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


async def test_two_indexers_index_each_event_once(url: str) -> None:
    async with opened(url) as store, opened(url) as other:
        for number in range(20):
            await said(store, f"s{number}", "a heron", "a pelican")
        found = await asyncio.gather(*(find(one, "heron") for one in (store, other) * 3))
    assert [len(set(places(hits))) for hits in found] == [20] * 6
    assert [len(hits) for hits in found] == [20] * 6


async def test_a_lease_that_is_renewed_is_no_change_of_the_text(url: str) -> None:
    async with opened(url) as store:
        await said(store, "a", "a heron")
        lease = await store.acquire(key("a"), "driver")
        assert len(await find(store, "heron")) == 1
        await store.renew(lease)
        changed = await store._texts._indexer._changes(None)
        assert changed.rows == []


async def drop(url: str) -> None:
    """Remove the index, as an operator may."""
    names = ("search_docs", "search_logs", "search_tenants", "search_epochs", "search_meta")
    if url.startswith("mongodb"):
        async with mongo(url) as database:
            for name in names:
                await database[name].drop()
        return
    async with direct(url) as conn:
        await conn.execute(f"DROP TABLE {', '.join(names)}")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_search_builds_an_index_again_that_was_dropped_a_moment_ago(
    kind: str, tmp_path: Path
) -> None:
    url = servers.url(kind, tmp_path)
    async with opened(url) as store:
        await said(store, "a", "a heron")
        assert len(await find(store, "heron")) == 1
        await drop(url)
        assert len(await find(store, "heron")) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_tenants_never_see_each_other_in_an_index(kind: str, tmp_path: Path) -> None:
    url = servers.url(kind, tmp_path)
    async with opened(url) as store:
        await said(store, "a", f"a {WORD}", tenant="one")
        await said(store, "a", "a heron", tenant="two")
        assert len(await find(store, WORD, tenant="one")) == 1
        assert await find(store, WORD, tenant="two") == []
        await drop(url)
        await said(store, "b", "a heron", tenant="two")
        assert len(await find(store, "heron", tenant="two")) == 2
        assert await find(store, "a*", tenant="three") == []


# PostgreSQL


@pytest.mark.parametrize("how", ["delete", "erase"])
async def test_removed_words_leave_the_tables_and_the_index(how: str, tmp_path: Path) -> None:
    url = servers.url("postgres", tmp_path)
    async with opened(url) as store:
        await said(store, "a", f"a {WORD} flew")
        await said(store, "b", "a heron flew")
        assert len(await find(store, WORD)) == 1
        assert {"search_docs"} <= set(await places_of(url))
        assert await index_has(url, WORD)
        await removed(store, how)
        receipt = await store.delete(key("a").scope)
        assert "index search_docs_terms" in " ".join(one.where for one in receipt.remains)
        assert await places_of(url) == []
        receipt = await store.purge()
        assert not await index_has(url, WORD)
        assert "search_docs_terms" not in " ".join(one.where for one in receipt.remains)
        assert places(await find(store, "flew")) == [("b", "main", 1)]


async def index_has(url: str, word: str) -> bool:
    """Whether a word is in the file of the inverted index."""
    address = await asyncio.to_thread(servers.address, "postgres")
    database = url.rpartition("/")[2].partition("?")[0]
    conn = await asyncpg.connect(postgres.admin_url(address, database))
    await conn.execute("CHECKPOINT")
    content: bytes = await conn.fetchval(
        "SELECT pg_read_binary_file(pg_relation_filepath($1::regclass))",
        f'"{Options(url).schema}".search_docs_terms',
    )
    await conn.close()
    return word.encode() in content


async def test_a_user_who_does_not_own_the_tables_may_delete_but_not_search_by_them(
    tmp_path: Path,
) -> None:
    url = servers.url("postgres", tmp_path)
    schema = Options(url).schema
    address = await asyncio.to_thread(servers.address, "postgres")
    database = url.rpartition("/")[2].partition("?")[0]
    async with opened(url) as store:
        await said(store, "a", f"a {WORD} flew")
        await said(store, "b", f"a {WORD} flew")
        assert len(await find(store, WORD)) == 2
    admin = await asyncpg.connect(postgres.admin_url(address, database))
    await admin.execute(
        f"CREATE ROLE {schema}_app LOGIN; GRANT USAGE ON SCHEMA {schema} TO {schema}_app;"
        f" GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.meta, {schema}.logs, {schema}.events,"
        f" {schema}.terms, {schema}.pending, {schema}.claims, {schema}.drafts, {schema}.snapshots,"
        f" {schema}.blobs TO {schema}_app"
    )
    own = postgres.admin_url(address, database).replace("postgres@", f"{schema}_app@", 1)
    async with opened(f"{own}&schema={schema}") as store:
        await store.delete(key("a").scope)
        page = await store.search(SearchQuery(text=WORD))
        assert (places(page.hits), page.scanned) == ([("b", "main", 1)], True)
        await store.delete(key("b").scope)
    assert await places_of(url) == []
    await admin.execute(f"DROP OWNED BY {schema}_app; DROP ROLE {schema}_app")
    await admin.close()


@pytest.mark.parametrize("damage", ["dropped", "another edition", "emptied"])
async def test_a_dropped_index_is_built_again(damage: str, tmp_path: Path) -> None:
    url = servers.url("postgres", tmp_path)
    async with opened(url) as store, direct(url) as conn:
        await said(store, "a", "a heron")
        await said(store, "c", "a heron")
        assert len(await find(store, "heron")) == 2
        if damage == "dropped":
            await conn.execute(
                "DROP TABLE search_docs, search_logs, search_tenants, search_epochs, search_meta"
            )
        elif damage == "another edition":
            await conn.execute("UPDATE search_meta SET value = '99' WHERE name = 'edition'")
        else:
            await conn.execute("SELECT search_reset_1()")
        await store.delete(key("c").scope)  # works without an index
        async with opened(url) as other:
            await said(other, "b", "a heron")
            assert len(await find(other, "heron")) == 2
            assert len(await find(store, "heron")) == 2
        await store.purge()


async def test_a_database_of_an_earlier_version_gets_an_index(tmp_path: Path) -> None:
    url = servers.url("postgres", tmp_path)
    async with opened(url) as store, direct(url) as conn:
        await said(store, "a", "a heron")
        # As a program left it that had no index.
        await conn.execute(
            "DROP TABLE search_docs, search_logs, search_tenants, search_epochs,"
            " search_meta; DROP FUNCTION search_log_1 CASCADE;"
            " DROP FUNCTION search_events_1 CASCADE; DROP FUNCTION search_1;"
            " DROP FUNCTION search_flush_1; DROP FUNCTION search_reset_1;"
            " DROP INDEX logs_changed; UPDATE meta SET version = 4"
        )
    async with opened(url) as store:
        assert len(await find(store, "heron")) == 1
        await store.delete(key("a").scope)
        assert await places_of(url, "heron") == []


async def test_a_restored_backup_is_noticed(tmp_path: Path) -> None:
    """The tables of the store are of a backup, those of the index are not."""
    url = servers.url("postgres", tmp_path)
    async with opened(url) as store, direct(url) as conn:
        await said(store, "a", "a heron")
        await conn.execute(
            "CREATE TABLE old_logs AS TABLE logs; CREATE TABLE old_events AS TABLE events"
        )
        await said(store, "a", f"a {WORD}", "a kestrel")
        await said(store, "b", "a pelican")
        assert len(await find(store, "a")) == 4
        await conn.execute(
            "TRUNCATE logs, events; INSERT INTO logs OVERRIDING SYSTEM VALUE TABLE old_logs;"
            " INSERT INTO events TABLE old_events; DROP TABLE old_logs, old_events"
        )
    async with opened(url) as store:
        await said(store, "a", "a gannet")
        assert places(await find(store, "a")) == [("a", "main", 1), ("a", "main", 2)]
        assert await find(store, WORD) == []
        assert len(await find(store, "gannet")) == 1
        assert await places_of(url) == []


async def test_a_restored_log_is_found(url: str) -> None:
    """Its events are old, so it is not among the logs that were active recently."""
    async with opened(url) as store:
        await said(store, "a", "a heron")
        events = [event async for event in store.read(key("a"))]
        assert len(await find(store, "heron")) == 1

        async def old() -> AsyncGenerator[holdfast.Event, None]:
            for event in events:
                yield holdfast.Event(
                    kind=event.kind, data=event.data, id="old", seq=event.seq, at=1_000_000
                )

        await store.restore(key("b"), old())
        assert places(await find(store, "heron")) == [("a", "main", 1), ("b", "main", 1)]


def test_an_event_has_no_more_terms_than_a_database_takes() -> None:
    """A ligature of one character is folded to 18."""
    text = " ".join(f"{n:04x}{LIGATURE * 3}A{n:04x}{LIGATURE * 3}" for n in range(5_000))
    terms = terms_of(EventText([f"{text} heron"], "user"), key("s"), 7, None).split()
    assert sum(len(term.encode()) for term in terms) <= 1_000_000 < len(text) * 18
    assert {"7:heron", "7:=user"} < set(terms)
