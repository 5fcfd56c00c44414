"""A power cut takes back what the index of a file store knew last, and brings back names that
were removed; the files that were acknowledged stay, and they are what counts."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import BlobNotFound, Key, LeaseHeld, LeaseLost, NewEvent, Store, key
from holdfast.store import Acquire
from holdfast.stores.file.payloads import FilePayloads
from holdfast.stores.sqlite.payloads import SqliteLogEntry

from .checks.rollbacks import rollbacks
from .facts import past
from .places import PLACES, drop_index, open_at
from .world import given

MEMORY = Path("/dev/shm")  # spares the disk what only a power cut would show


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where many copies of a store are made."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        with tempfile.TemporaryDirectory(dir=MEMORY) as name:
            yield Path(name)
    else:
        yield tmp_path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a store is open until it is cut."""
    (tmp_path / "open").mkdir()
    return tmp_path / "open"


def note(id: str, size: int = 20) -> NewEvent:
    return NewEvent.of("note.made", {"text": "x" * size}, id=id)


async def ids(store: Store, log: Key) -> list[str]:
    return [event.id async for event in store.read(log)]


def cut(folder: Path, to: Path) -> Path:
    """The folder of an open store as it is now, without the process that has it open."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*-shm", "*.lock"))
    return to


def take_back(folder: Path, before: Path) -> None:
    """Put the index of an earlier moment in place of a folder's own."""
    drop_index(folder)
    for path in (before / PLACES["file"]).glob("index.db*"):
        shutil.copyfile(path, folder / PLACES["file"] / path.name)


@pytest.mark.parity("user-demand", 23)
def test_files_of_any_moment_hold_what_was_acknowledged_whatever_the_index_knows(
    folder: Path,
) -> None:
    assert rollbacks(folder, every=10).problems == []


async def test_a_fork_keeps_what_it_shares_of_an_append_that_was_trimmed(
    tmp_path: Path, place: Path
) -> None:
    store = await open_at("file", place)
    await store.append(key("s"), [note(f"n{n}") for n in range(5)], create=True)
    await store.fork(key("s"), "fork", at=3, first=note("first"))
    await store.delete(key("s"))
    work = cut(place, tmp_path / "cut")
    await store.aclose()
    drop_index(work)
    for _ in range(2):
        store = await open_at("file", work)
        assert await ids(store, key("s", "fork")) == ["n0", "n1", "n2", "first"]
        assert [damage async for damage in store.verify()] == []
        await store.aclose()


async def test_a_restore_that_the_index_takes_for_unfinished_is_there(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_at("file", place)
    real = FilePayloads.finish

    def finish(payloads: FilePayloads, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        cut(place, tmp_path / "before")
        real(payloads, conn, entry)

    monkeypatch.setattr(FilePayloads, "finish", finish)
    await store.restore(key("s"), given(past(["n0-s", "n1-s"])))
    work = cut(place, tmp_path / "cut")
    await store.aclose()
    take_back(work, tmp_path / "before")
    store = await open_at("file", work)
    assert await ids(store, key("s")) == ["n0-s", "n1-s"]
    assert [damage async for damage in store.verify()] == []
    await store.aclose()


async def test_a_trimmed_file_of_the_size_that_the_index_knows_is_read_anew(
    tmp_path: Path, place: Path
) -> None:
    store = await open_at("file", place)
    await store.append(key("s"), [note("n0")], create=True)
    row = await store.row(key("s"))
    assert row is not None
    before = cut(place, tmp_path / "before")
    await store.append(key("s"), [note("n1")])
    await store.fork(key("s"), "fork", at=2, first=note("first"))
    await store.delete(key("s"))
    work = cut(place, tmp_path / "cut")
    await store.aclose()
    (trimmed,) = work.rglob(f"{row.log}.jsonl")
    with closing(sqlite3.connect(before / PLACES["file"] / "index.db")) as index, index:
        # As if the name, which a trimmed file lacks, were as long as the line of the event.
        index.execute("UPDATE files SET size = ? WHERE log > 0", (trimmed.stat().st_size,))
    take_back(work, before)
    store = await open_at("file", work)
    assert await ids(store, key("s", "fork")) == ["n0", "n1", "first"]
    assert [damage async for damage in store.verify()] == []
    await store.aclose()


async def test_blobs_of_a_deleted_session_do_not_come_back_to_the_next_of_its_name(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_at("file", place)
    await store.append(key("s"), [note("n0")], create=True)
    old = await store.put_blob(key("s").scope, b"old")
    real = FilePayloads.committed

    def committed(payloads: FilePayloads) -> None:
        cut(place, tmp_path / "before")
        monkeypatch.undo()
        real(payloads)

    monkeypatch.setattr(FilePayloads, "committed", committed)
    await store.delete(key("s").scope)
    await store.append(key("s"), [note("n1")], create=True)
    new = await store.put_blob(key("s").scope, b"new")
    work = cut(place, tmp_path / "cut")
    await store.aclose()
    # What was removed after the commit is back, as names are whose folder was not fsynced.
    shutil.copytree(tmp_path / "before", work, dirs_exist_ok=True, copy_function=_missing)
    assert len(list((work / PLACES["file"] / "blobs").iterdir())) == 2
    store = await open_at("file", work)
    assert await store.get_blob(key("s").scope, new) == b"new"
    with pytest.raises(BlobNotFound):
        await store.get_blob(key("s").scope, old)
    assert await ids(store, key("s")) == ["n1"]
    await store.aclose()


def _missing(source: str, target: str) -> None:
    if not os.path.exists(target):
        shutil.copyfile(source, target)


async def test_a_new_log_gets_its_name_when_it_is_whole_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave it without its first line, which looks like damage."""
    store = await open_at("file", tmp_path)
    logs = tmp_path / PLACES["file"] / "logs"
    real_fsync, real_replace = os.fsync, os.replace
    synced: dict[int, int] = {}
    seen: list[str] = []

    def fsync(file: int) -> None:
        seen.extend(path.name for path in logs.glob("*/*.jsonl") if _unsafe(path, synced))
        real_fsync(file)
        synced[os.fstat(file).st_ino] = os.fstat(file).st_size

    def replace(old: Path, new: Path) -> None:
        if new.suffix == ".jsonl" and _unsafe(old, synced):
            seen.append(new.name)
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    await store.append(key("s"), [note(f"n{n}", 2_000) for n in range(10)], create=True)
    await store.fork(key("s"), "fork", at=3, first=note("first"))
    assert len(list(logs.glob("*/*.jsonl"))) == 2
    assert seen == []
    monkeypatch.undo()
    await store.aclose()


def _unsafe(path: Path, synced: dict[int, int]) -> bool:
    found = path.stat()
    return synced.get(found.st_ino) != found.st_size


async def test_a_lost_index_takes_no_lease_from_the_files(place: Path) -> None:
    """A newer lease may have been lost with it, so whoever drove has to acquire again."""
    store = await open_at("file", place)
    done = await store.append(key("s"), [note("n0")], create=True, acquire=Acquire("first", 60))
    old = done.lease
    await store.aclose()
    drop_index(place)
    store = await open_at("file", place)
    with pytest.raises(LeaseLost):
        await store.append(key("s"), [note("n1")], fence=old)
    new = await store.acquire(key("s"), "second")
    assert old is not None
    assert new.token > old.token
    await store.aclose()


async def test_an_index_that_was_rolled_back_takes_the_newest_lease_from_the_files(
    tmp_path: Path, place: Path
) -> None:
    store = await open_at("file", place)
    done = await store.append(key("s"), [note("n0")], create=True, acquire=Acquire("first", 60))
    await store.append(key("s"), [note("n1")], release=done.lease)
    await store.aclose()
    before = cut(place, tmp_path / "before")
    store = await open_at("file", place)
    await store.append(key("s"), [note("n2")], acquire=Acquire("second", 60))
    await store.append(key("s"), [note("n3")])
    work = cut(place, tmp_path / "cut")
    await store.aclose()
    take_back(work, before)
    store = await open_at("file", work)
    with pytest.raises(LeaseHeld) as held:
        await store.acquire(key("s"), "third")
    assert held.value.owner == "second"
    assert await ids(store, key("s")) == ["n0", "n1", "n2", "n3"]
    await store.aclose()


async def test_a_rebuilt_index_counts_what_was_erased(place: Path) -> None:
    store = await open_at("file", place)
    events = [note("n0"), note("n1"), note("n2", 70_000)]
    await store.append(key("s"), events, create=True)
    await store.erase(key("s"), [2, 3], reason="asked")
    row = await store.row(key("s"))
    await store.aclose()
    drop_index(place)
    store = await open_at("file", place)
    assert row is not None
    assert row.erased == 2
    assert await store.row(key("s")) == row
    assert [damage async for damage in store.verify()] == []
    await store.aclose()
