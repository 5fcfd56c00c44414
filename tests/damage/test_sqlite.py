"""A damaged SQLite file: a changed byte costs one event, a spoiled row costs nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from holdfast import HoldfastError, NewEvent, Query, connect, key
from holdfast.log.catalog import Row
from holdfast.stores.frames import packed
from holdfast.stores.sqlite import SqliteStore

from . import scene
from .scene import KEY, OTHER, damages, note, read_all, readable, row_of

LARGE = "x" * 70_000
MARKED = packed(b'{"n":"marked"}')


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[SqliteStore, None]:
    store = await SqliteStore.open(path, durability="process")
    try:
        yield store
    finally:
        await store.aclose()


async def prepared(path: Path) -> None:
    created = NewEvent.of("session.created", {"labels": ["vip"], "title": "T"}, id="c")
    async with opened(path) as store:
        events = [created, note(2), note("marked", id="id-of-3"), note(LARGE, id="l"), note(5)]
        await store.append(KEY, events, create=True)
        await store.append(OTHER, [note(n) for n in range(1, 4)], create=True)


@pytest.mark.parametrize(
    ("old", "new", "seq"),
    [
        (b'{"n":"marked"}', b'{"n":"marred"}', 3),
        (b'{"n":"marked"}', b'{"n":"marked"]', 3),
        (MARKED, b"z" + MARKED[1:], 3),
        (MARKED[:5], b"jjjjj", 3),
        (b'{"n":"xxx', b'{"n":"xyx', 4),
    ],
)
async def test_a_changed_byte_costs_one_event(
    tmp_path: Path, old: bytes, new: bytes, seq: int
) -> None:
    path = tmp_path / "s.db"
    await prepared(path)
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    async with opened(path) as store:
        await scene.check_other(store)
        events, lost = await readable(store)
        assert lost == [seq]
        assert [event.seq for event in events] == [n for n in range(1, 6) if n != seq]
        (found,) = await damages(store)
        assert (found.problem, found.key, found.seq) == ("unreadable", KEY, seq)
        (mended,) = await damages(store, repair=True)
        assert (mended.seq, mended.repaired) == (seq, True)
        assert await damages(store) == []
        assert (await read_all(store))[seq - 1].json() == {"erased": "damaged"}
        assert (await row_of(store)).labels == {"vip": True}
        await scene.check_goes_on(store, 5)
        await scene.check_other(store)


async def test_a_changed_id_is_found_by_verify(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await prepared(path)
    path.write_bytes(path.read_bytes().replace(b"id-of-3", b"id-of-9"))
    async with opened(path) as store:
        (found,) = await damages(store)
        assert (found.problem, found.key, found.seq) == ("unreadable", KEY, 3)
        await damages(store, repair=True)
        assert await damages(store) == []
        await scene.check_goes_on(store, 5)


@pytest.mark.parametrize(
    "doc", [b"not JSON", b"", b"\xff", b"[]", b"{}", b'{"tenant":7}', None], ids=repr
)
async def test_a_spoiled_row_is_listed_and_rebuilt(tmp_path: Path, doc: bytes | None) -> None:
    path = tmp_path / "s.db"
    await prepared(path)
    async with opened(path) as store:
        before = await row_of(store)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE logs SET doc = ? WHERE session = 's'", (doc,))
    async with opened(path) as store:
        assert {row.key for row in (await store.find(Query())).items} == {KEY, OTHER}
        assert [row.key for row in (await store.find(Query(label="vip"))).items] == [KEY]
        assert len(await read_all(store)) == 5
        (found,) = await damages(store)
        assert (found.problem, found.key) == ("row", KEY)
        (mended,) = await damages(store, repair=True)
        assert (mended.problem, mended.repaired) == ("row", True)
        assert await damages(store) == []
        assert await row_of(store) == before
        await scene.check_goes_on(store, 5)
        await scene.check_other(store)


@pytest.mark.parity("user-demand", 24, 72)
async def test_a_row_that_says_something_else_is_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await prepared(path)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(
            "UPDATE logs SET doc = replace(CAST(doc AS TEXT), '\"T\"', '\"U\"') WHERE session = 's'"
        )
    async with opened(path) as store:
        assert (await row_of(store)).title == "U"
        (found,) = await damages(store)
        assert (found.problem, found.key) == ("row", KEY)
        await damages(store, repair=True)
        assert (await row_of(store)).title == "T"
        assert await damages(store) == []


async def test_a_row_that_cannot_be_read_fails_no_lookup_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with connect(f"sqlite:{path}") as store:
        for name in ("sound", "spoiled"):
            await store.append(key(name), [NewEvent.of("note.made")], create=True)
        with closing(sqlite3.connect(path)) as conn, conn:
            conn.execute("UPDATE logs SET owner = CAST(x'ff' AS TEXT) WHERE session = 'spoiled'")
        asked = (store.row(key("sound")), store.row(key("spoiled")))
        sound, spoiled = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(sound, Row)
        assert sound.session == "sound"
        assert isinstance(spoiled, HoldfastError)


async def test_a_lookup_on_its_way_is_answered_when_the_store_closes(tmp_path: Path) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what))
    for _ in range(10):
        store = await connect(f"sqlite:{tmp_path / 'a.db'}")
        asked = asyncio.create_task(store.row(key("s")))
        await asyncio.gather(asyncio.create_task(store.aclose()), asked)
    assert told == []
