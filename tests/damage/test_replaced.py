"""Files that are removed or replaced while a store has them open. The index of a file store is
made again, and nothing that was acknowledged is lost; a SQLite file is the only copy, so nothing is
acknowledged that is not in the file at its path."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from holdfast import (
    CaughtUp,
    LeaseLost,
    Query,
    Store,
    StoreReplaced,
    StoreUnavailable,
    connect,
    key,
)
from holdfast.events import Event
from holdfast.testing.samples import given
from tests import forks

from .scene import KEY, OTHER, check_other, damages, note, opened, read_all, seqs

INDEX = ("index.db", "index.db-wal", "index.db-shm")

# A process that appends one event to each session, and makes a new one.
APPENDS = """
import asyncio, sys
from holdfast import NewEvent, connect, key

async def main():
    async with connect(sys.argv[1]) as store:
        for name in ("s", "other", sys.argv[2]):
            event = NewEvent.of("note.made", {"n": sys.argv[2]}, id=f"{sys.argv[2]}-{name}")
            await store.append(key(name), [event], create=True)

asyncio.run(main())
"""


async def another_process_appends(url: str, name: str) -> None:
    await asyncio.to_thread(forks.run, "-c", APPENDS, url, name, check=True)


async def fill(store: Store) -> None:
    for log, count in ((KEY, 5), (OTHER, 3)):
        await store.append(log, [note(n) for n in range(1, count + 1)], create=True)


# Ways to take away the index of a file store


def remove_all(folder: Path) -> None:
    for path in folder.glob("index.db*"):
        path.unlink()


def remove_database(folder: Path) -> None:
    (folder / "index.db").unlink()


def remove_journal(folder: Path) -> None:
    for name in INDEX[1:]:
        (folder / name).unlink()


def remove_shared_memory(folder: Path) -> None:
    (folder / "index.db-shm").unlink()


def put_older(folder: Path) -> None:
    """Put a copy in its place that was made when there was nothing."""
    shutil.copyfile(folder / "older.db", folder / "copy.db")
    remove_all(folder)
    (folder / "copy.db").rename(folder / "index.db")


def put_rubbish(folder: Path) -> None:
    (folder / "rubbish").write_bytes(b"no database" * 1_000)
    (folder / "rubbish").rename(folder / "index.db")


WAYS: list[Callable[[Path], None]] = [
    remove_all,
    remove_database,
    remove_journal,
    remove_shared_memory,
    put_older,
    put_rubbish,
]
ANY_WAY = pytest.mark.parametrize("take", WAYS, ids=lambda way: way.__name__)


async def prepare(folder: Path) -> None:
    """A folder with an index that knows nothing aside."""
    async with opened(folder):
        pass
    shutil.copyfile(folder / "index.db", folder / "older.db")


@ANY_WAY
async def test_no_event_is_lost_when_the_index_goes_under_two_writers(
    tmp_path: Path, take: Callable[[Path], None]
) -> None:
    folder, url = tmp_path / "store", f"file:{tmp_path / 'store'}"
    await prepare(folder)
    async with opened(folder) as store:
        await fill(store)
        take(folder)
        await another_process_appends(url, "b1")
        for n in (7, 8):
            assert (await store.append(KEY, [note(n)])).seqs == (n,)
        await another_process_appends(url, "b2")
        ids = [event.id for event in await read_all(store)]
        assert ids == [*(f"note-{n}" for n in range(1, 6)), "b1-s", "note-7", "note-8", "b2-s"]
        assert [e.id for e in await read_all(store, OTHER)][3:] == ["b1-other", "b2-other"]
        listed = {row.session for row in (await store.find(Query())).items}
        assert listed == {"s", "other", "b1", "b2"}
        assert await damages(store) == []
    async with opened(folder) as store:
        assert [event.id for event in await read_all(store)] == ids
        assert await damages(store) == []
    remove_all(folder)
    async with opened(folder) as store:
        assert [event.id for event in await read_all(store)] == ids
        assert await damages(store) == []


@ANY_WAY
async def test_a_writer_that_is_alone_goes_on_without_its_index(
    tmp_path: Path, take: Callable[[Path], None]
) -> None:
    await prepare(tmp_path)
    async with opened(tmp_path) as store:
        await fill(store)
        await store.claim("main", "name", KEY.scope)
        blob = await store.put_blob(KEY.scope, b"a blob")
        take(tmp_path)
        assert (await store.append(KEY, [note(6)])).seqs == (6,)
        assert await seqs(store) == [1, 2, 3, 4, 5, 6]
        await check_other(store)
        assert await store.claims(KEY.scope) == ["name"]
        assert await store.get_blob(KEY.scope, blob) == b"a blob"
        assert await damages(store) == []
    async with opened(tmp_path) as store:
        assert await seqs(store) == [1, 2, 3, 4, 5, 6]


@ANY_WAY
async def test_a_reader_sees_what_was_written_since_the_index_went(
    tmp_path: Path, take: Callable[[Path], None]
) -> None:
    await prepare(tmp_path)
    async with opened(tmp_path) as writer, opened(tmp_path) as reader:
        await fill(writer)
        assert await seqs(reader) == [1, 2, 3, 4, 5]
        take(tmp_path)
        await writer.append(KEY, [note(6)])
        await writer.append(key("new"), [note(1)], create=True)
        assert await seqs(reader) == [1, 2, 3, 4, 5, 6]
        row = await reader.row(key("new"))
        assert row is not None
        assert row.head == 1


async def test_a_reader_that_is_first_to_notice_reads_all(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        remove_all(tmp_path)
        assert await seqs(store) == [1, 2, 3, 4, 5]
        remove_all(tmp_path)
        assert len((await store.find(Query())).items) == 2
        remove_all(tmp_path)
        assert (await asyncio.gather(store.row(KEY), store.row(OTHER))).count(None) == 0


@ANY_WAY
async def test_a_follower_goes_on_with_the_new_index(
    tmp_path: Path, take: Callable[[Path], None]
) -> None:
    await prepare(tmp_path)
    async with opened(tmp_path) as writer, opened(tmp_path) as reader:
        await fill(writer)
        async with aclosing(reader.follow(KEY, after=5)) as events:
            assert isinstance(await anext(events), CaughtUp)
            take(tmp_path)
            for n in (6, 7):
                await writer.append(KEY, [note(n)])
                event = await asyncio.wait_for(anext(events), 30)
                assert isinstance(event, Event)
                assert event.seq == n


async def test_a_lease_goes_with_the_index_and_the_next_one_is_newer(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        lease = await store.acquire(KEY, "driver")
        remove_all(tmp_path)
        with pytest.raises(LeaseLost):
            await store.append(KEY, [note(6)], fence=lease)
        newer = await store.acquire(KEY, "driver")
        assert newer.token > lease.token
        assert (await store.append(KEY, [note(6)], fence=newer)).seqs == (6,)


async def test_a_restore_that_loses_the_index_fails_and_can_be_sent_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        events = [event.numbered(n, 1) for n, event in enumerate(map(note, range(3_000)), 1)]

        async def interrupted() -> AsyncGenerator[Event, None]:
            for event in events:
                if event.seq == 2_500:
                    await asyncio.to_thread(remove_all, tmp_path)
                    await store.append(OTHER, [note("between")])
                yield event

        with pytest.raises(StoreUnavailable):
            await store.restore(key("restored"), interrupted())
        assert await store.row(key("restored")) is None
        await store.restore(key("restored"), given(events))
        assert len(await read_all(store, key("restored"))) == 3_000
        assert await seqs(store) == [1, 2, 3, 4, 5]
        assert await damages(store) == []


async def test_an_older_index_that_was_put_back_is_caught_up_when_it_is_opened(
    tmp_path: Path,
) -> None:
    await prepare(tmp_path)
    async with opened(tmp_path) as store:
        await fill(store)
    put_older(tmp_path)
    async with opened(tmp_path) as store:
        assert await seqs(store) == [1, 2, 3, 4, 5]
        assert {row.session for row in (await store.find(Query())).items} == {"s", "other"}
        assert await damages(store) == []


async def test_a_folder_that_was_replaced_takes_no_events(tmp_path: Path) -> None:
    async with opened(tmp_path / "store") as store:
        await fill(store)
        (tmp_path / "store").rename(tmp_path / "old")
        async with opened(tmp_path / "store") as other:
            await other.append(key("new"), [note(1)], create=True)
        with pytest.raises(StoreReplaced):
            await store.append(KEY, [note(6)])
        with pytest.raises(StoreReplaced):
            await store.row(KEY)
    async with opened(tmp_path / "old") as store:
        assert await seqs(store) == [1, 2, 3, 4, 5]


# A SQLite file


def rename_all(path: Path) -> None:
    for name in sorted(path.parent.glob("store.db*")):
        name.rename(path.parent / f"old-{name.name}")


def unlink_all(path: Path) -> None:
    for name in path.parent.glob("store.db*"):
        name.unlink()


def unlink_journal(path: Path) -> None:
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink()


def put_backup(path: Path) -> None:
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("VACUUM INTO ?", (str(path.parent / "backup.db"),))
    (path.parent / "backup.db").rename(path)


@pytest.mark.parametrize(
    "take", [rename_all, unlink_all, unlink_journal, put_backup], ids=lambda way: way.__name__
)
async def test_nothing_is_acknowledged_into_a_sqlite_file_that_was_removed_or_replaced(
    tmp_path: Path, take: Callable[[Path], None]
) -> None:
    path = tmp_path / "store.db"
    async with connect(f"sqlite:{path}") as store:
        await fill(store)
        async with aclosing(store.follow(KEY, after=5)) as events:
            assert isinstance(await anext(events), CaughtUp)
            take(path)
            with pytest.raises(StoreReplaced) as caught:
                await store.append(KEY, [note(6)])
            assert str(path) in str(caught.value)
            assert not caught.value.retryable
            with pytest.raises(StoreReplaced):
                await read_all(store)
            with pytest.raises(StoreReplaced):
                await store.row(KEY)
            with pytest.raises(StoreReplaced):
                await asyncio.wait_for(anext(events), 30)
        for attempt in (store.purge(), store.acquire(KEY, "driver")):
            with pytest.raises(StoreReplaced):
                await attempt


async def test_a_sqlite_file_made_again_by_another_process_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    async with connect(url) as store:
        await fill(store)
        unlink_all(tmp_path / "store.db")
        await another_process_appends(url, "b")
        with pytest.raises(StoreReplaced):
            await store.append(KEY, [note(6)])
        with pytest.raises(StoreReplaced):
            await read_all(store)
    async with connect(url) as store:
        assert [event.id for event in await read_all(store)] == ["b-s"]
        assert await damages(store) == []


async def test_a_store_named_by_a_relative_path_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with connect("sqlite:store.db") as one, connect("file:store") as two:
        monkeypatch.chdir(tmp_path / "elsewhere")
        for store in (one, two):
            await fill(store)
            assert await seqs(store) == [1, 2, 3, 4, 5]
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_link_to_a_sqlite_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
    async with connect(f"sqlite:{tmp_path / 'link.db'}") as store:
        await fill(store)
        assert await seqs(store) == [1, 2, 3, 4, 5]
    assert (tmp_path / "store.db").stat().st_mode & 0o777 == 0o600
