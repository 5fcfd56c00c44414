"""A database file that SQLite itself cannot read: `verify` reports it as damage, and the index of a
file store, which can be rebuilt, is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import NewEvent, Query, StoreDamaged, connect, key
from holdfast.stores.file import FileStore
from holdfast.stores.sqlite import SqliteStore

from .scene import damages, read_all

PAGE = 4_096
SESSIONS, EVENTS = 12, 20


async def fill(url: str) -> None:
    async with connect(url) as store:
        for session in range(SESSIONS):
            events = [NewEvent.of("note.made", {"text": "x" * 500}) for _ in range(EVENTS)]
            await store.append(key(f"s{session}"), events, create=True)


def page_of(path: Path, text: bytes) -> int:
    """The first page that holds a text."""
    return path.read_bytes().index(text) // PAGE


def spoil_page(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek(page * PAGE)
        file.write(b"\xff" * PAGE)


def spoil_every_third(path: Path) -> None:
    for page in range(2, path.stat().st_size // PAGE, 3):
        spoil_page(path, page)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def spoil_schema(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(bytes(PAGE - 100))


@pytest.mark.parametrize("page", [1, 2, 3, 10, 20])
async def test_verify_reports_a_malformed_page(tmp_path: Path, page: int) -> None:
    path = tmp_path / "s.db"
    await fill(f"sqlite:{path}")
    spoil_page(path, page)
    store = await SqliteStore.open(path)
    for repair in (False, True):
        found = await damages(store, repair=repair)
        assert [damage for damage in found if damage.problem == "unreadable"]
    await store.aclose()


@pytest.mark.parametrize("harm", [truncate, spoil_every_third], ids=lambda harm: harm.__name__)
async def test_verify_reports_a_file_that_is_damaged_while_it_is_open(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "s.db"
    await fill(f"sqlite:{path}")
    async with connect(f"sqlite:{path}") as store:
        harm(path)
        found = await damages(store)
        assert {damage.problem for damage in found} >= {"unreadable"}
        assert all(damage.detail for damage in found)


@pytest.mark.parametrize("harm", [truncate, spoil_schema], ids=lambda harm: harm.__name__)
async def test_a_file_that_cannot_be_opened_is_called_damaged(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "s.db"
    await fill(f"sqlite:{path}")
    harm(path)
    with pytest.raises(StoreDamaged) as caught:
        await connect(f"sqlite:{path}")
    assert str(path) in str(caught.value)
    assert "backup" in str(caught.value)


async def every_event(store: FileStore) -> int:
    rows = (await store.find(Query(), limit=100)).items
    return sum([len(await read_all(store, row.key)) for row in rows])


@pytest.mark.parametrize(
    "harm", [truncate, spoil_schema, spoil_every_third], ids=lambda harm: harm.__name__
)
async def test_a_malformed_index_is_rebuilt_when_it_is_met(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    await fill(f"file:{tmp_path / 'store'}")
    harm(tmp_path / "store" / "index.db")
    async with connect(f"file:{tmp_path / 'store'}") as store:
        for session in range(SESSIONS):
            assert len(await read_all(store, key(f"s{session}"))) == EVENTS
        assert (await store.append(key("s3"), [NewEvent.of("note.made")])).seqs == (EVENTS + 1,)
        assert len((await store.find(Query(), limit=100)).items) == SESSIONS
        await damages(store, repair=True)
        assert await damages(store) == []
        events = [len(await read_all(store, key(f"s{n}"))) for n in range(SESSIONS)]
        assert sum(events) == SESSIONS * EVENTS + 1


async def test_an_index_that_is_damaged_while_it_is_open_is_rebuilt(tmp_path: Path) -> None:
    await fill(f"file:{tmp_path / 'store'}")
    async with connect(f"file:{tmp_path / 'store'}") as store:
        await asyncio.to_thread(spoil_every_third, tmp_path / "store" / "index.db")
        for session in range(SESSIONS):
            log = key(f"s{session}")
            assert (await store.append(log, [NewEvent.of("note.made")])).seqs == (EVENTS + 1,)
            assert len(await read_all(store, log)) == EVENTS + 1
        assert await damages(store) == []


async def test_verify_reports_a_malformed_index_and_repair_rebuilds_it(tmp_path: Path) -> None:
    await fill(f"file:{tmp_path}")
    store = await FileStore.open(tmp_path)
    index = tmp_path / "index.db"
    spoil_page(index, page_of(index, b"note.made"))
    found = await damages(store)
    assert [damage for damage in found if "index.db" in damage.detail and not damage.repaired]
    await store.aclose()
    spoil_page(index, page_of(index, b"note.made"))
    store = await FileStore.open(tmp_path)
    found = await damages(store, repair=True)
    assert all(damage.repaired for damage in found)
    assert await damages(store) == []
    await store.aclose()
