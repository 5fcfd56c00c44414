"""The full-text index in MongoDB: connections lost at each command of an indexer, a delete and an
erase, dropped collections, restored backups, and programs that know of no index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import bson
import pytest
from msgspec import Raw

from holdfast import Event, NewEvent, SessionNotFound, StoreUnavailable, connect, key
from holdfast.stores.mongodb import MongoStore
from holdfast.stores.search import indexer
from holdfast.testing.search_contract import find, places, said
from tests import servers

from .conftest import Raw as RawDatabase

WORD = "zyzzyva"


@pytest.fixture(autouse=True)
def interrupted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim ends at once, as if the time had passed."""
    monkeypatch.setattr(indexer, "CLAIMED", 0.0)


async def with_word(raw: RawDatabase, word: str = WORD) -> list[str]:
    """The collections in which a word is anywhere."""
    found = []
    for name in await raw.list_collection_names():
        if any([word.encode() in bson.encode(doc) async for doc in raw[name].find()]):
            found.append(name)
    return sorted(found)


@asynccontextmanager
async def mortal(url: str) -> AsyncGenerator[MongoStore, None]:
    """A store that gives up at the first connection that is lost."""
    mark = "&" if "?" in url else "?"
    store = await MongoStore.open(f"{url}{mark}retryWrites=false&retryReads=false")
    store._address = replace(store._address, patience=0.0)
    try:
        yield store
    finally:
        with suppress(StoreUnavailable):
            await store.aclose()


async def delete(store: MongoStore) -> None:
    await store.delete(key("a").scope)


async def erase(store: MongoStore) -> None:
    await store.erase(key("a"), [1], reason="asked to")


async def index(store: MongoStore) -> None:
    await store._texts._index.create()
    await store._texts._indexer.catch_up()


async def given(store: MongoStore) -> None:
    await said(store, "a", f"a {WORD} flew", "a heron flew")
    first = NewEvent.of("thread.forked", {"parent": "main", "at": 1})
    await store.fork(key("a"), "fork", at=1, first=first)
    await said(store, "b", "a pelican flew")


@pytest.mark.parametrize("call", [delete, erase, index])
async def test_a_call_that_ends_at_any_command_loses_and_keeps_no_match(
    call: Callable[[MongoStore], Awaitable[None]], tmp_path: Path
) -> None:
    with servers.faulty("standalone") as place:
        past_the_wire = place.server.url(tmp_path)
        async with connect(past_the_wire) as store, mortal(place.url(tmp_path)) as dying:
            assert isinstance(store, MongoStore)
            for number in count(1):
                await given(store)
                if call is not index:
                    assert len(await find(store, "flew")) == 3
                place.wire.lose("request", number)
                with suppress(StoreUnavailable):
                    await call(dying)
                lost = place.wire.lost
                place.wire.disarm()
                await check(store, call)
                for session in "ab":
                    await store.delete(key(session).scope)
                if not lost:
                    assert number > 5
                    return


async def check(store: MongoStore, call: Callable[[MongoStore], Awaitable[None]]) -> None:
    """A search finds exactly what the store has, and a call that is repeated leaves no word."""
    there = await store.row(key("a"))
    whole = there is not None and there.erased == 0
    texts = [bytes(event.data) async for event in store.read(key("a"))] if there is not None else []
    held = sum(WORD.encode() in text for text in texts)
    assert len(await find(store, WORD)) == held
    assert len(await find(store, "flew")) == 1 + sum(b"flew" in text for text in texts)
    assert whole or held == 0
    if call is not index:
        with suppress(SessionNotFound):
            await call(store)
        await store.purge()
        assert await with_word(store._db.place) == []
        assert await find(store, WORD) == []


class Paused:
    """A collection whose n-th write waits."""

    def __init__(self, collection: Any, name: str) -> None:
        self._collection = collection
        self._name = name
        self.ready, self.resume = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._collection, name)
        if name != self._name:
            return method

        async def call(*args: Any, **options: Any) -> Any:
            self.ready.set()
            await self.resume.wait()
            return await method(*args, **options)

        return call


@pytest.mark.parametrize("step", ["insert_many", "bulk_write", "positions"])
@pytest.mark.parametrize("call", [delete, erase])
async def test_an_indexer_that_was_paused_at_any_step_writes_no_removed_word(
    store: MongoStore,
    other: MongoStore,
    raw: RawDatabase,
    call: Callable[[MongoStore], Awaitable[None]],
    step: str,
) -> None:
    await given(store)
    text_index: Any = other._texts._index
    await text_index.create()
    if step == "positions":
        paused = text_index._logs = Paused(text_index._logs, "bulk_write")
    else:
        paused = text_index._docs = Paused(text_index._docs, step)
    indexing = asyncio.create_task(other._texts._indexer.catch_up())
    await paused.ready.wait()
    await call(store)
    assert await with_word(raw) == []
    paused.resume.set()
    await indexing
    assert await with_word(raw) == []
    assert len(await find(other, "flew")) == (1 if call is delete else 2)
    assert await find(store, WORD) == []


async def test_the_words_of_an_event_are_removed_from_the_forks_that_share_it(
    store: MongoStore, raw: RawDatabase
) -> None:
    await given(store)
    await store.append(key("a", "fork"), [NewEvent.of("message.received", {"text": "a gannet"})])
    assert len(await find(store, WORD)) == 1
    await store.erase(key("a", "fork"), [1], reason="asked to")
    assert await with_word(raw) == []
    assert len(await find(store, "gannet")) == 1
    assert len(await find(store, "heron")) == 1


async def test_an_erasure_does_not_index_its_log_again(store: MongoStore, raw: RawDatabase) -> None:
    await given(store)
    assert len(await find(store, "flew")) == 3
    await erase(store)
    changed = await store._texts._indexer._changes(None)
    assert [row.log for row in changed.rows] == []


@pytest.mark.parametrize("damage", ["dropped", "docs dropped", "another edition", "reset"])
async def test_a_damaged_index_is_built_again(
    store: MongoStore, other: MongoStore, raw: RawDatabase, damage: str
) -> None:
    await given(store)
    assert len(await find(store, "flew")) == 3
    if damage == "another edition":
        await raw["search_docs"].update_one({"_id": "index"}, {"$set": {"edition": 99}})
    elif damage == "reset":
        await other._texts._index.reset()
    else:
        for name in ["search_docs"] if damage == "docs dropped" else await searching(raw):
            await raw[name].drop()
    await store.delete(key("b").scope)  # works without an index
    assert len(await find(store, "flew")) == 2
    assert len(await find(other, "flew")) == 2
    await store.purge()


async def searching(raw: RawDatabase) -> list[str]:
    return [name for name in await raw.list_collection_names() if name.startswith("search_")]


async def test_a_reindex_reports_progress(store: MongoStore) -> None:
    await given(store)
    seen = [progress async for progress in store.reindex()]
    assert (seen[-1].done, seen[-1].total) == (3, 3)
    assert len(await find(store, "flew")) == 3


async def test_a_restored_backup_is_noticed(url: str, store: MongoStore, raw: RawDatabase) -> None:
    """The collections of the store are of a backup, those of the index are not."""
    await given(store)
    names = ("logs", "batches", "chunks")
    old = {name: await raw[name].find().to_list() for name in names}
    await said(store, "a", f"another {WORD}", "a kestrel")
    await said(store, "c", "a pelican")
    assert len(await find(store, WORD)) == 2
    for name, docs in old.items():
        await raw[name].delete_many({})
        if docs:
            await raw[name].insert_many(docs)
    async with connect(url) as restored:
        await raw["search_docs"].update_one({"_id": "index"}, {"$set": {"mark": "0 0"}})
        await said(restored, "a", "a gannet")
        assert places(await find(restored, WORD)) == [("a", "main", 1)]
        assert len(await find(restored, "gannet")) == 1
        assert len(await find(restored, "pelican")) == 1
        assert await find(restored, "kestrel") == []


async def test_what_a_program_without_an_index_deleted_leaves_the_index(
    store: MongoStore, raw: RawDatabase
) -> None:
    await given(store)
    assert len(await find(store, WORD)) == 1
    for name in ("logs", "batches", "chunks"):
        await raw[name].delete_many({"session": "a"})
    assert await find(store, WORD) == []
    assert await with_word(raw) == ["search_docs"]
    await store.purge()
    assert await with_word(raw) == []


async def test_two_events_at_the_same_place_are_both_found(store: MongoStore) -> None:
    """The order of matches has a time, a number and one byte of each log."""

    async def event(number: int) -> AsyncGenerator[Event, None]:
        data = Raw(b'{"text":"a heron"}')
        yield Event(kind="message.received", data=data, id=f"e{number}", seq=1, at=1_000_000)

    for number in range(257):
        await store.restore(key(f"s{number}"), event(number))
    hits = await find(store, "heron", limit=100)
    assert len({hit.session for hit in hits}) == len(hits) == 257


async def test_a_search_reads_terms_by_their_index(store: MongoStore, raw: RawDatabase) -> None:
    for number in range(300):
        rare = f"{WORD} " if number == 5 else ""
        await said(store, f"s{number % 10}", f"{rare}a heron flew{number}")
    assert len(await find(store, WORD)) == 1
    await raw.command("profile", 2)
    try:
        assert len(await find(store, f"heron {WORD}")) == 1
    finally:
        await raw.command("profile", 0)
    where = {"ns": {"$regex": "search_docs"}, "op": "query"}
    looked = await raw["system.profile"].find(where).to_list()
    assert {one["docsExamined"] for one in looked} == {1}
