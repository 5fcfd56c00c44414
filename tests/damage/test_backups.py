"""A backup that is made as documented, while the store is written to, opens and is whole."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from holdfast import BlobRef, NewEvent, Query, Store, connect, key

from .scene import damages, read_all

LOG = key("busy")


def by_backup(path: Path, to: Path) -> None:
    with closing(sqlite3.connect(path)) as store, closing(sqlite3.connect(to)) as copy:
        store.backup(copy)


def by_vacuum(path: Path, to: Path) -> None:
    with closing(sqlite3.connect(path)) as store:
        store.execute("VACUUM INTO ?", (str(to),))


def by_copy(path: Path, to: Path) -> None:
    """In the order that is documented."""
    to.mkdir()
    for name in ("logs", "blobs", "journal.jsonl", "open", "format.json"):
        if (path / name).is_dir():
            with suppress(shutil.Error):  # a file that was renamed meanwhile
                shutil.copytree(path / name, to / name)
        elif (path / name).exists():
            shutil.copy(path / name, to / name)


@asynccontextmanager
async def written_to(store: Store) -> AsyncGenerator[asyncio.Semaphore, None]:
    """Events, and attachments that they name, are appended all the while; each append releases the
    semaphore."""
    done = asyncio.Semaphore(0)

    async def write() -> None:
        while True:
            blob = await store.put_blob(LOG.scope, os.urandom(50))
            named = {"blob": blob.sha256, "size": blob.size}
            events = [NewEvent.of("note.made", named) for _ in range(5)]
            await store.append(LOG, events, create=True)
            done.release()

    await store.append(LOG, [NewEvent.of("note.made")], create=True)
    task = asyncio.create_task(write())
    yield done
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def wait_for(appends: int, done: asyncio.Semaphore) -> None:
    for _ in range(appends):
        await done.acquire()


@pytest.mark.parametrize(
    ("kind", "back_up"),
    [("sqlite", by_backup), ("sqlite", by_vacuum), ("file", by_copy)],
    ids=["backup", "vacuum", "copy"],
)
async def test_a_backup_of_a_store_that_is_written_to_is_whole(
    tmp_path: Path, kind: str, back_up: Callable[[Path, Path], None]
) -> None:
    url = f"{kind}:{tmp_path / 'store'}?durability=process"
    async with connect(url) as store, written_to(store) as done:
        await wait_for(20, done)
        await asyncio.to_thread(back_up, tmp_path / "store", tmp_path / "backup")
        await wait_for(5, done)
    async with connect(f"{kind}:{tmp_path / 'backup'}") as copy:
        found = await damages(copy)
        assert [damage for damage in found if not damage.repaired] == []
        assert len((await copy.find(Query())).items) == 1
        events = (await read_all(copy, LOG))[1:]
        assert len(events) >= 20 * 5
        assert len(events) % 5 == 0, "an append is there whole or not"
        for event in events:
            named = event.json()
            assert await copy.get_blob(LOG.scope, BlobRef(named["blob"], named["size"]))
