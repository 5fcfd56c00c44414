"""What was deleted or erased is invisible at once, and after a purge nowhere in the raw files."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from holdfast import (
    BlobNotFound,
    Event,
    Key,
    LeaseLost,
    LogReplaced,
    NewEvent,
    Query,
    Receipt,
    Scope,
    SessionNotFound,
    Snapshot,
    Store,
)
from holdfast.stores.memory import MemoryStore
from tests.crash.places import KINDS, PLACES, holding, open_at
from tests.crash.scene import BYSTANDERS, LARGE, Scene, listed, plant, shown, view

ALL = ("memory", *KINDS)
DATABASES = {"sqlite": "holdfast.db", "file": "holdfast/index.db"}
SORTS = ("logs", "events", "snapshots", "drafts", "blobs", "claims")
NOTHING = dict.fromkeys(SORTS, 0)


@contextlib.asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncGenerator[Store, None]:
    store: Store
    if kind == "memory":
        store = MemoryStore()
    else:
        store = await open_at(kind, folder, durability="process")
    try:
        yield store
    finally:
        await store.aclose()


async def threads(store: Store, scope: Scope) -> list[Key]:
    page = await store.find(Query(tenant=scope.tenant, session=scope.session), limit=1_000)
    return [row.key for row in page.items]


async def texts(store: Store, key: Key) -> list[object]:
    return [event.json() async for event in store.read(key)]


def marks_of(scene: Scene) -> list[str]:
    marks = scene.marks
    return [marks.shared, marks.own, marks.erased, marks.far, marks.session]


# A whole session


@pytest.mark.parity("user-demand", 52)
@pytest.mark.parametrize("kind", ALL)
async def test_a_deleted_session_is_invisible_to_every_method(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        scene = await plant(store)
        keys = await threads(store, scene.doomed)
        beside = [await view(store, scope, scene) for scope in BYSTANDERS]
        lease = await store.acquire(scene.main, "late", steal="a test")
        snapshot = Snapshot(log=lease.log, seq=1, version="late", state=Raw(b"{}"))

        await store.delete(scene.doomed)

        assert await shown(store, scene, keys) == []
        for mark in marks_of(scene):
            assert await listed(store, scene, mark) == []
        refused: list[Callable[[], Awaitable[object]]] = [
            lambda: store.renew(lease),
            lambda: store.release(lease),
            lambda: store.put_draft(scene.main, "late", 0, "text", fence=lease),
            lambda: store.save_snapshot(scene.main, snapshot, fence=lease),
            lambda: store.append(scene.main, [NewEvent.of("note.made")], fence=lease),
            lambda: store.append(scene.main, [NewEvent.of("note.made")], log=lease.log),
        ]
        for call in refused:
            with pytest.raises((SessionNotFound, LogReplaced)):
                await call()
        for ref in scene.blobs:
            with pytest.raises(BlobNotFound):
                await store.get_blob(scene.doomed, ref)
        assert await view(store, scene.doomed, scene) == {}
        assert [damage async for damage in store.verify(scene.doomed)] == []
        assert [damage async for damage in store.verify()] == []
        assert [await view(store, scope, scene) for scope in BYSTANDERS] == beside


@pytest.mark.parity("user-demand", 52)
@pytest.mark.parametrize("kind", KINDS)
async def test_after_a_purge_no_raw_file_holds_anything_of_it(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        scene = await plant(store)
    for mark in marks_of(scene):
        assert holding(tmp_path, mark), "the scan finds what is there"

    async with opened(kind, tmp_path) as store:
        await store.delete(scene.doomed)
        assert (await store.purge()).remains == ()
        for mark in marks_of(scene):
            assert holding(tmp_path, mark) == [], "with the store still open"
    for mark in marks_of(scene):
        assert holding(tmp_path, mark) == []


@pytest.mark.parity("user-demand", 52)
@pytest.mark.parametrize("kind", ALL)
async def test_the_receipt_counts_what_went(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        scene = await plant(store)
        rows = [await store.row(key) for key in await threads(store, scene.doomed)]
        own = sum(row.head - (row.parent.at if row.parent else 0) for row in rows if row)

        receipt = await store.delete(scene.doomed)

        assert receipt.removed == {
            "logs": 4,
            "events": own,
            "snapshots": 3,
            "drafts": 3,
            "blobs": len(scene.blobs),
            "claims": len(scene.claims),
        }


@pytest.mark.parity("user-demand", 52)
@pytest.mark.parametrize("kind", KINDS)
async def test_the_receipt_names_every_file_that_still_holds_something(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as store:
        scene = await plant(store)
    async with opened(kind, tmp_path) as store:
        receipt = await store.delete(scene.doomed)
        for mark in marks_of(scene):
            check_named(receipt, holding(tmp_path, mark))
    assert all(remains.what and remains.remedy for remains in receipt.remains)


def check_named(receipt: Receipt, left: list[str]) -> None:
    named = {Path(remains.where).name for remains in receipt.remains}
    assert {Path(name).name for name in left} <= named


@pytest.mark.parametrize("kind", ALL)
async def test_deleting_again_removes_nothing(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        scene = await plant(store)
        await store.delete(scene.doomed)
        assert (await store.delete(scene.doomed)).removed == NOTHING
        assert (await store.delete(scene.main)).removed == NOTHING
        assert (await store.delete(Scope("nobody", "nothing"))).removed == NOTHING
        await store.purge()
        assert (await store.delete(scene.doomed)).removed == NOTHING


@pytest.mark.parametrize("kind", ALL)
async def test_a_session_grown_again_sees_nothing_of_the_old(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        scene = await plant(store)
        lease = await store.acquire(scene.main, "old", steal="a test")
        await store.delete(scene.doomed)
        new = NewEvent.of("note.made", {"text": "new"}, id=f"{scene.marks.shared}-1")
        await store.append(scene.main, [new], create=True)

        seen = await view(store, scene.doomed, scene)
        row = seen["rows"].pop("main")
        assert (row.head, row.title, row.labels, row.pending) == (1, None, {}, {})
        assert await texts(store, scene.main) == [{"text": "new"}]
        assert seen["drafts"] == {"main": []}
        assert seen["leases"] == {"main": None}
        shown_parts = {"rows", "events", "drafts", "leases"}
        assert set(seen) == shown_parts, "no blobs, claims, snapshots, pending"
        for mark in (scene.marks.own, scene.marks.erased, scene.marks.far):
            assert mark not in repr(seen)
        with pytest.raises(LogReplaced):
            [event async for event in store.read(scene.main, log=lease.log)]
        with pytest.raises(LogReplaced):
            [event async for event in store.follow(scene.main, after=13, log=lease.log)]
        with pytest.raises(LogReplaced):
            await store.append(scene.main, [NewEvent.of("note.made")], log=lease.log)
        snapshot = Snapshot(log=lease.log, seq=1, version="late", state=Raw(b"{}"))
        refused: list[Callable[[], Awaitable[object]]] = [
            lambda: store.append(scene.main, [NewEvent.of("note.made")], fence=lease),
            lambda: store.renew(lease),
            lambda: store.release(lease),
            lambda: store.put_draft(scene.main, "late", 0, "text", fence=lease),
            lambda: store.save_snapshot(scene.main, snapshot, fence=lease),
            lambda: store.erase(scene.main, [1], reason="late", fence=lease),
            lambda: store.delete(scene.main, fence=lease),
        ]
        for call in refused:
            with pytest.raises((LeaseLost, LogReplaced)):
                await call()
        assert await texts(store, scene.main) == [{"text": "new"}]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_purge_beside_a_reader_reports_what_it_could_not_reach(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as store:
        scene = await plant(store)
        with contextlib.closing(sqlite3.connect(tmp_path / DATABASES[kind])) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            await store.delete(scene.doomed)
            began = time.monotonic()
            receipt = await store.purge()
            assert time.monotonic() - began < 10, "nobody can write meanwhile"
            assert receipt.remains, "the reader still sees the old pages"
            assert all(remains.what and remains.remedy for remains in receipt.remains)
            for mark in marks_of(scene):
                check_named(receipt, holding(tmp_path, mark))
        assert (await store.purge()).remains == ()
    for mark in marks_of(scene):
        assert holding(tmp_path, mark) == []


# One thread


class Threads(msgspec.Struct, frozen=True):
    """A thread with a fork of its first two events, and a mark for each of its parts."""

    name: str
    shared: str
    later: str

    @property
    def parent(self) -> Key:
        return Key("main", "family", f"thread {self.name}")

    fork = Key("main", "family", "fork")


async def plant_threads(store: Store) -> Threads:
    planted = Threads(*(f"mark{secrets.token_hex(8)}" for _ in range(3)))
    shared, later = planted.shared, planted.later
    lease_owner = f"driver {later}"
    await store.append(
        planted.parent,
        [
            NewEvent.of("thread.created", {"title": shared}, id="1"),
            NewEvent.of("note.made", {"text": f"{shared} " * (LARGE // 20)}, id="2"),
            NewEvent.of("thread.renamed", {"title": later}, id=later, run=later, actor=later),
            NewEvent.of("note.made", {"text": f"{later} " * (LARGE // 20)}, id="4", cause=later),
        ],
        create=True,
    )
    first = NewEvent.of("thread.created", {"title": "a fork"}, id="first")
    await store.fork(planted.parent, planted.fork.thread, at=2, first=first)
    lease = await store.acquire(planted.parent, lease_owner)
    await store.put_draft(planted.parent, f"message {later}", 0, later, fence=lease)
    state = Raw(msgspec.json.encode({"text": [shared, later]}))
    snapshot = Snapshot(log=lease.log, seq=4, version=f"v {later}", state=state)
    await store.save_snapshot(planted.parent, snapshot, fence=lease)
    return planted


async def read_all(store: Store, key: Key) -> list[Event]:
    return [event async for event in store.read(key)]


@pytest.mark.parametrize("kind", ALL)
async def test_a_deleted_thread_leaves_what_its_forks_share(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        planted = await plant_threads(store)
        before = await read_all(store, planted.fork)
        receipt = await store.delete(planted.parent)
        assert receipt.removed == {**NOTHING, "logs": 1, "events": 4, "snapshots": 1, "drafts": 1}
        assert await store.row(planted.parent) is None
        assert await threads(store, planted.parent.scope) == [planted.fork]
        assert await read_all(store, planted.fork) == before
        assert [damage async for damage in store.verify()] == []


@pytest.mark.parametrize("kind", KINDS)
async def test_only_what_forks_share_is_left_in_the_raw_files(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        planted = await plant_threads(store)
    for mark in (planted.name, planted.shared, planted.later):
        assert holding(tmp_path, mark)

    async with opened(kind, tmp_path) as store:
        receipt = await store.delete(planted.parent)
        shared = [left for left in receipt.remains if planted.fork.thread in left.what]
        assert len(shared) == 1
        assert "up to 2" in shared[0].what
        assert "fork" in shared[0].remedy
        await store.purge()
    assert holding(tmp_path, planted.name) == []
    assert holding(tmp_path, planted.later) == []
    assert holding(tmp_path, planted.shared)

    async with opened(kind, tmp_path) as store:
        assert [event.seq for event in await read_all(store, planted.fork)] == [1, 2, 3]
        receipt = await store.delete(planted.fork)
        assert not any("fork" in left.what for left in receipt.remains)
        assert (await store.purge()).remains == ()
    assert holding(tmp_path, planted.shared) == []


# Erasing


@pytest.mark.parametrize("kind", ALL)
async def test_the_erased_is_nowhere_and_forks_see_it_erased(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        planted = await plant_threads(store)
        receipt = await store.erase(planted.parent, [1, 2], reason="asked")
        assert receipt.removed == {"payloads": 2, "snapshots": 1}
        for key in (planted.parent, planted.fork):
            assert (await texts(store, key))[:2] == [{"erased": "asked"}] * 2
            row = await store.row(key)
            assert planted.shared not in repr(row)
        if kind != "memory":
            check_named(receipt, holding(tmp_path, planted.shared))
        assert (await store.purge()).remains == ()
        assert [damage async for damage in store.verify()] == []
    assert holding(tmp_path, planted.shared) == []


@pytest.mark.parametrize("kind", ALL)
async def test_erasing_through_the_fork_reaches_the_parent(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        planted = await plant_threads(store)
        await store.erase(planted.fork, [1, 2], reason="asked")
        assert (await texts(store, planted.parent))[:2] == [{"erased": "asked"}] * 2
        row = await store.row(planted.parent)
        assert row is not None
        assert row.title == planted.later
        await store.purge()
    assert holding(tmp_path, planted.shared) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_deleted_thread_left_can_be_erased(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        planted = await plant_threads(store)
        await store.delete(planted.parent)
        await store.erase(planted.fork, [1, 2], reason="asked")
        assert (await texts(store, planted.fork))[:2] == [{"erased": "asked"}] * 2
        assert [damage async for damage in store.verify()] == []
        await store.purge()
    for mark in (planted.name, planted.shared, planted.later):
        assert holding(tmp_path, mark) == []


def test_the_places_are_those_of_the_stores() -> None:
    assert {kind: name.partition("/")[0] for kind, name in DATABASES.items()} == PLACES
