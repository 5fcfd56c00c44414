"""The index of texts of SQLite and file stores: what a kill, a pause, a copy or another version
leaves never shows in a search, and removed words leave the files."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import NewEvent, Store, connect, key
from holdfast.log.catalog import SearchQuery
from holdfast.stores.search import TextSearch, indexer, sqlite_entries, text_search
from holdfast.stores.search import sqlite as sqlite_index
from holdfast.stores.search.sqlite import ERASES_AT_ONCE, SqliteTextIndex
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.changes import CHANGED
from holdfast.testing.search_contract import find, places, said

WORD = "zyzzyva"
STORES = ("sqlite", "file")


def place(kind: str, folder: Path) -> str:
    return f"sqlite:{folder}/s.db" if kind == "sqlite" else f"file:{folder}/s"


def index_file(kind: str, folder: Path) -> Path:
    return folder / "s.db.search" if kind == "sqlite" else folder / "s" / "search.db"


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncGenerator[SqliteStore, None]:
    async with connect(place(kind, folder)) as store:
        assert isinstance(store, SqliteStore)
        yield store


def files_with(folder: Path, word: str = WORD) -> list[str]:
    """The names of the files that have a word anywhere."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in paths if word.encode() in path.read_bytes()]


class Killed(BaseException):
    """The process ended here."""


class Mortal:
    """An index that a process used until it was killed, before or after the n-th call."""

    def __init__(self, index: Any, calls: float, *, after: bool = False) -> None:
        self._index = index
        self._left = calls
        self._after = after
        self.called: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._index, name)
        if name in ("aclose", "keeps_words"):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            self.called[name] += 1
            self._left -= 1
            if self._left < 0 or (self._left == 0 and not self._after):
                raise Killed
            done = await method(*args, **options)
            if self._left == 0:
                raise Killed
            return done

        return call


def use(store: SqliteStore, index: Any) -> None:
    """Let a store use another index."""
    store._texts = TextSearch(store, index, store._changed_logs)


def index_of(store: SqliteStore) -> SqliteTextIndex:
    index = store._texts._index
    assert isinstance(index, SqliteTextIndex)
    return index


@pytest.fixture(autouse=True)
def interrupted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that did not end counts as interrupted at once, and so does a claim."""
    monkeypatch.setattr(indexer, "STALE_MS", -1_000)
    monkeypatch.setattr(indexer, "CLAIMED", 0.0)


async def removed(store: Store, how: str) -> None:
    if how == "delete":
        await store.delete(key("a").scope)
    else:
        await store.erase(key("a"), [1], reason="asked to")


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("how", ["delete", "erase"])
async def test_removed_words_leave_the_files(kind: str, how: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        await said(store, "a", f"a {WORD} flew")
        await said(store, "b", "a heron flew")
        assert len(await find(store, WORD)) == 1
        assert index_file(kind, tmp_path).name in files_with(tmp_path)
        await removed(store, how)
        if sqlite3.sqlite_version_info >= ERASES_AT_ONCE:
            assert index_file(kind, tmp_path).name not in files_with(tmp_path)
        else:
            receipt = await store.delete(key("a").scope)
            assert str(index_file(kind, tmp_path)) in {one.where for one in receipt.remains}
        assert places(await find(store, "flew")) == [("b", "main", 1)]
        await store.purge()
        assert files_with(tmp_path) == []
        assert places(await find(store, "flew")) == [("b", "main", 1)]


@pytest.mark.parametrize("kind", STORES)
async def test_the_index_is_as_private_as_the_store(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        await said(store, "a", "a heron")
        assert len(await find(store, "heron")) == 1
    assert index_file(kind, tmp_path).stat().st_mode & 0o777 == 0o600


async def test_a_store_that_is_never_searched_has_no_index(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store:
        await said(store, "a", "a heron")
        await store.delete(key("a").scope)
    assert not index_file("sqlite", tmp_path).exists()


@pytest.mark.parametrize("how", ["delete", "erase"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 9))
async def test_a_killed_removal_loses_and_keeps_no_match(
    how: str, after: bool, step: int, tmp_path: Path
) -> None:
    """Wherever it was killed: the search finds exactly what the store has."""
    async with opened("sqlite", tmp_path) as store:
        await said(store, "a", f"a {WORD} flew", "a heron flew")
        await said(store, "b", "a pelican flew")
        assert len(await find(store, "flew")) == 3
    async with opened("sqlite", tmp_path) as store:
        index = Mortal(index_of(store), step, after=after)
        use(store, index)
        try:
            await removed(store, how)
            assert index._left >= 0
        except Killed:
            pass
        use(store, index_of_path(tmp_path))
    async with opened("sqlite", tmp_path) as store:
        there = await store.row(key("a"))
        left = 2 if there is not None and there.erased == 0 else int(there is not None)
        assert len(await find(store, "flew")) == left + 1
        assert len(await find(store, WORD)) == int(left == 2)
        if left < 2:
            await store.purge()
            assert files_with(tmp_path) == []
        await store.delete(key("a").scope)
        assert places(await find(store, "flew")) == [("b", "main", 1)]
        await store.purge()
        assert files_with(tmp_path) == []


def index_of_path(folder: Path) -> SqliteTextIndex:
    return SqliteTextIndex(f"{folder}/s.db.search", like=f"{folder}/s.db")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 12))
async def test_a_killed_indexer_loses_nothing(after: bool, step: int, tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store:
        for session in "abc":
            await said(store, session, "a heron", "a pelican")
        index = Mortal(index_of(store), step, after=after)
        use(store, index)
        await index._index.create()
        with suppress(Killed):
            assert await store._texts._indexer.catch_up()
        use(store, index_of_path(tmp_path))
    async with opened("sqlite", tmp_path) as store:
        assert len(await find(store, "heron")) == 3
        assert len(await find(store, "a")) == 6


class Paused(SqliteTextIndex):
    """An index whose indexer waits before it writes what it read."""

    def __init__(self, path: str, like: str) -> None:
        super().__init__(path, like)
        self.ready, self.resume = asyncio.Event(), asyncio.Event()

    async def add(self, batch: Any) -> int:
        self.ready.set()
        await self.resume.wait()
        return await super().add(batch)


@pytest.mark.parametrize("how", ["delete", "erase"])
async def test_an_indexer_does_not_write_what_was_removed_meanwhile(
    how: str, tmp_path: Path
) -> None:
    async with opened("sqlite", tmp_path) as store, opened("sqlite", tmp_path) as other:
        await said(store, "a", f"a {WORD} flew")
        await said(store, "b", "a heron flew")
        paused = Paused(f"{tmp_path}/s.db.search", like=f"{tmp_path}/s.db")
        use(other, paused)
        assert await paused.create()
        indexing = asyncio.create_task(other._texts._indexer.catch_up())
        await paused.ready.wait()
        await removed(store, how)
        paused.resume.set()
        await indexing
        assert index_file("sqlite", tmp_path).name not in files_with(tmp_path)
        assert places(await find(store, "flew")) == [("b", "main", 1)]


async def test_a_removal_that_took_too_long_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The indexer takes it for interrupted, and indexes the session again; then it goes on."""
    async with opened("sqlite", tmp_path) as store, opened("sqlite", tmp_path) as other:
        await said(store, "a", f"a {WORD} flew")
        await said(store, "b", "a heron flew")
        assert len(await find(store, "flew")) == 2
        ready, resume = asyncio.Event(), asyncio.Event()
        hide = store._hide

        async def slow(*args: Any) -> Any:
            ready.set()
            await resume.wait()
            return await hide(*args)

        monkeypatch.setattr(store, "_hide", slow)
        deleting = asyncio.create_task(store.delete(key("a").scope))
        await ready.wait()
        assert len(await find(other, "flew")) == 2  # the session is still there
        resume.set()
        await deleting
        assert places(await find(other, "flew")) == [("b", "main", 1)]
        await other.purge()
        assert files_with(tmp_path) == []


async def test_two_indexers_index_each_event_once(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store, opened("sqlite", tmp_path) as other:
        for number in range(30):
            await said(store, f"s{number}", "a heron", "a pelican")
        found = await asyncio.gather(*(find(one, "heron") for one in (store, other) * 3))
    assert [len(set(places(hits))) for hits in found] == [30] * 6
    assert [len(hits) for hits in found] == [30] * 6
    with sqlite3.connect(index_file("sqlite", tmp_path)) as conn:
        assert conn.execute("SELECT count(*), count(DISTINCT log) FROM docs").fetchone() == (60, 30)


@pytest.mark.parametrize("damage", ["removed", "empty", "garbage", "another edition"])
@pytest.mark.parametrize("kind", STORES)
async def test_a_damaged_index_is_built_again(kind: str, damage: str, tmp_path: Path) -> None:
    path = index_file(kind, tmp_path)
    async with opened(kind, tmp_path) as store:
        await said(store, "a", "a heron")
        assert len(await find(store, "heron")) == 1
        if damage == "removed":
            path.unlink()  # while it is open
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "garbage":
        path.write_bytes(b"no database" * 1_000)
    elif damage == "another edition":
        with sqlite3.connect(path) as conn:
            conn.execute("PRAGMA user_version = 99")
    async with opened(kind, tmp_path) as store:
        await said(store, "b", "a heron")
        assert len(await find(store, "heron")) == 2
        path.unlink()
        await store.delete(key("a").scope)
        assert places(await find(store, "heron")) == [("b", "main", 1)]


async def test_a_restored_backup_is_noticed(tmp_path: Path) -> None:
    """The index knows events that the backup does not have, and others under the same number."""
    async with opened("sqlite", tmp_path) as store:
        await said(store, "a", "a heron")
    shutil.copy(tmp_path / "s.db", tmp_path / "backup")
    async with opened("sqlite", tmp_path) as store:
        await said(store, "a", f"a {WORD}", "a kestrel")
        await said(store, "b", "a pelican")
        assert len(await find(store, "a")) == 4
    for name in ("s.db", "s.db-wal", "s.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup", tmp_path / "s.db")
    async with opened("sqlite", tmp_path) as store:
        await said(store, "a", "a gannet")
        assert places(await find(store, "a")) == [("a", "main", 1), ("a", "main", 2)]
        assert await find(store, WORD) == []
        assert len(await find(store, "gannet")) == 1
        await store.purge()
        assert files_with(tmp_path) == []


async def test_a_rewind_that_is_not_indexed_yet_counts(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store:
        await said(store, "a", "a heron", "a pelican")
        assert len(await find(store, "pelican")) == 1

        async def nothing(report: Any = None) -> bool:
            return False

        store._texts._indexer.catch_up = nothing  # type: ignore[method-assign]
        rewound = NewEvent.of("thread.rewound", {"to": 1, "window": {}})
        await store.append(key("a"), [rewound])
        page = await store.search(SearchQuery(text="pelican"))
        assert (page.hits, page.behind) == ([], True)


async def test_searches_at_the_same_time_are_all_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_search, "PATIENCE", 60.0)
    async with opened("sqlite", tmp_path) as store:
        await said(store, "a", "a heron")
        assert len(await find(store, "heron")) == 1
        some = await asyncio.gather(*(store.search(SearchQuery(text="heron")) for _ in range(20)))
    assert [(len(page.hits), page.behind) for page in some] == [(1, False)] * 20


async def test_the_indexer_rests_after_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "EVENTS", 10)
    rest, indexed = indexer.Indexer._rest, []

    async def rested(self: indexer.Indexer) -> None:
        indexed.append(sum(position.seq for position in await self._index.logs()))
        await rest(self)

    monkeypatch.setattr(indexer.Indexer, "_rest", rested)
    async with opened("sqlite", tmp_path) as store:
        for number in range(3):
            await said(store, f"s{number}", *["a heron"] * 20)
        assert len(await find(store, "heron")) == 60
    assert indexed[:6] == [10, 20, 30, 40, 50, 60]


async def test_more_events_of_one_moment_than_it_has_places_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_entries, "SPAN", 8)
    monkeypatch.setattr(sqlite_entries, "PROBES", 4)
    for now in (0, 1_700_000_000_000):
        folder = tmp_path / str(now)
        folder.mkdir()
        clock = [now]
        store = await SqliteStore.open(str(folder / "s.db"), clock=partial(max, clock))
        async with aclosing(store):
            for number in range(10):
                await said(store, f"s{number}", *["a heron"] * 7)
            clock.append(now + 1)
            await said(store, "late", "a heron")
            every = await find(store, "heron", limit=3)
            assert (len(every), len(set(places(every)))) == (71, 71)
            assert every[0].session == "late"
            assert len(await find(store, "heron", since=now, until=now + 1)) == 70
            assert len(await find(store, "heron", until=now)) == 0
            assert len(await find(store, "heron", since=now + 1)) == 1
            await store.delete(key("s3").scope)
            assert len(await find(store, "heron", since=now)) == 64


async def test_events_of_one_append_come_in_their_order(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store:
        for number in range(3):
            await said(store, f"s{number}", *[f"heron {n}" for n in range(300)])
        hits = await find(store, "heron", session="s1")
    assert [hit.seq for hit in hits] == list(range(300, 0, -1))


async def test_free_pages_leave_the_index_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_index, "LEAST_FREE", 0)
    path = index_file("sqlite", tmp_path)
    async with opened("sqlite", tmp_path) as store:
        for number in range(5):
            await said(store, f"s{number}", *(f"heron w{number}{n}" for n in range(100)))
        assert len(await find(store, "heron")) == 500
        size = path.stat().st_size
        for number in range(4):
            await store.delete(key(f"s{number}").scope)
        async with aclosing(store.reindex()) as progress:
            assert [step async for step in progress][-1].done == 1
        assert len(await find(store, "heron")) == 100
        assert path.stat().st_size < size


async def test_a_prefix_of_too_many_words_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in another tenant, with other words, and excluded."""
    async with opened("sqlite", tmp_path) as store:
        for tenant in ("main", "other"):
            for number in range(5):
                texts = [f"w{number}{n} {'heron' if n % 2 else 'gannet'}" for n in range(40)]
                await said(store, f"s{number}", *texts, "no match", tenant=tenant)
        queries = ("w*", "heron w*", "w* -w1*", "heron -w*", "heron", "w3*", "from:user -w*")
        expected = [places(await find(store, query, limit=30)) for query in queries]
        assert [len(some) for some in expected] == [200, 100, 160, 0, 100, 40, 5]
        monkeypatch.setattr(sqlite_entries, "PREFIX_STEPS", 5)
        found = [places(await find(store, query, limit=30)) for query in queries]
        assert found == expected
        assert len(index_of(store)._broad) == 4


async def test_a_search_reads_new_events_only(tmp_path: Path) -> None:
    async with connect(f"sqlite:{tmp_path}/h.db"):
        pass
    link = sqlite3.connect(tmp_path / "h.db")
    try:
        plan = [row[3] for row in link.execute(f"EXPLAIN QUERY PLAN {CHANGED}", (1_000, 0))]
    finally:
        link.close()
    assert "SEARCH events USING INTEGER PRIMARY KEY (rowid>?)" in plan
    assert not [step for step in plan if step.startswith("SCAN") and "events" in step]
