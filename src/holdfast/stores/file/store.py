"""`FileStore`: the port on a folder of JSON lines, for any number of processes.

The lines are the truth; `index.db` beside them answers everything that is not a plain
read, and can be deleted whenever no process has the folder open. All but that is the
SQLite store.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ... import catalog
from ...catalog import Project
from ...errors import InvalidValue, LogDamaged, StoreTooNew
from ...events import Event, Key, Scope, new_id
from ...store import Damage, Durability, Receipt, Remains, StoreInfo, wall_clock
from ..lock import FileLock, held
from ..sqlite import schema
from ..sqlite.store import SqliteStore, check_durability, check_path, sync_folder
from .bodies import InFiles
from .folder import Folder
from .index import TABLES, Index
from .recovery import Recovery

VERSION = 1

Page = tuple[str, list[Event], LogDamaged | None]


class FileStore(SqliteStore):
    """Sessions as files. Open it with `holdfast.connect("file:DIR")`."""

    kind = "file"

    def __init__(self, folder: Folder, index: Index, presence: Presence, **rest: Any) -> None:
        super().__init__(str(folder.root / "index.db"), **rest)
        self._folder = folder
        self._index = index
        self._files: InFiles = rest["bodies"]
        self._recovery = Recovery(folder, index, self._files)
        self._presence = presence

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        durability: str = "machine",
        project: Project = catalog.project,
        clock: Callable[[], int] = wall_clock,
    ) -> FileStore:
        """Open the folder, making it if need be; safe for many processes at once."""
        level: Durability = check_durability(durability)
        root = Path(check_path(os.fspath(path)))
        folder = Folder(root, sync=level == "machine")
        files = Index(folder, project)
        bodies = InFiles(folder, project, files)
        conn, lock, presence = await asyncio.to_thread(
            _open, root, Recovery(folder, files, bodies), bodies
        )
        return cls(
            folder,
            files,
            presence,
            durability=level,
            conn=conn,
            lock=lock,
            bodies=bodies,
            project=project,
            clock=clock,
        )

    async def _page(self, key: Key, **bounds: Any) -> Page:
        page = await super()._page(key, **bounds)
        if page[2] is not None:
            # The file may have been written anew between the look at the index and the
            # read; ask again, after the index was held against the file.
            await self._writer.run(lambda conn: self._index.check_line(conn, key))
            page = await super()._page(key, **bounds)
        return page

    async def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        await self._writer.run(self._recovery.check_all)
        for damage in await self._readers.run(lambda conn: self._index.damages()):
            if target is None or (damage.key and target in (damage.key, damage.key.scope)):
                yield damage
        for damage in await self._readers.run(self._recovery.headless):
            if target is None or (damage.key and target in (damage.key, damage.key.scope)):
                if repair and damage.key is not None:
                    await self._writer.run(partial(self._files.put_header, key=damage.key))
                    yield msgspec.structs.replace(damage, repaired=True)
                else:
                    yield damage
        async for damage in super().verify(target, repair=repair):
            yield damage

    async def purge(self) -> Receipt:
        await self._writer.run(self._recovery.tidy)
        return await super().purge()

    def _left_behind(self) -> tuple[Remains, ...]:
        journal = Remains(
            where=str(self._folder.journal),
            what="names that were claimed",
            remedy="holdfast purge",
        )
        return (journal, *super()._left_behind())

    def info(self) -> StoreInfo:
        return msgspec.structs.replace(
            super().info(), location=str(self._folder.root), schema=VERSION
        )

    async def aclose(self) -> None:
        await super().aclose()
        self._folder.close()
        await asyncio.to_thread(self._presence.end)


class Presence:
    """Shows the next who opens the folder whether everybody before left in order: each
    process holds a locked file in `open/`, and one that is not locked belongs to the dead."""

    def __init__(self, root: Path) -> None:
        self._path = root / "open" / new_id()
        self._lock = FileLock(str(self._path))
        self._lock.__enter__()
        sync_folder(str(self._path))  # or a power cut could take the mark and leave the index

    def end(self) -> None:
        if self._path.exists():
            self._path.unlink()
            self._lock.__exit__(None, None, None)
            self._lock.close()


def left_by_the_dead(root: Path) -> list[Path]:
    """The files of processes that had the folder open and did not leave in order."""
    return [path for path in (root / "open").iterdir() if not held(str(path))]


def _open(
    root: Path, recovery: Recovery, bodies: InFiles
) -> tuple[sqlite3.Connection, FileLock, Presence]:
    with schema.translated(), ExitStack() as undo:
        schema.folder_of(str(root))
        if root.exists() and not root.is_dir():
            raise InvalidValue(
                field="url", problem=f"{str(root)!r} is not a folder", remedy="name a folder"
            )
        root.mkdir(exist_ok=True, mode=0o700)
        lock = FileLock(str(root / "index.db.lock"))
        undo.callback(lock.close)
        with lock:
            _check_format(root)
            for folder in (root / "logs", root / "blobs", root / "open"):
                folder.mkdir(exist_ok=True, mode=0o700)
            dead = left_by_the_dead(root)
            conn = _open_index(root, bodies, recovery.recover if dead else recovery.rebuild)
            undo.callback(conn.close)
            if dead:
                _transact(conn, bodies, recovery.recover)
            for path in dead:
                path.unlink(missing_ok=True)
            presence = Presence(root)
        undo.pop_all()
    return conn, lock, presence


def _check_format(root: Path) -> None:
    path = root / "format.json"
    if not path.exists():
        if any(root.glob("logs/*")) or (root / "index.db").exists():
            raise InvalidValue(
                field="url",
                problem=f"{str(root)!r} has logs or an index but no format.json",
                remedy='name another folder or, if it is a store, restore it: {"holdfast": 1}',
            )
        Folder(root, sync=True).replace(path, msgspec.json.encode({"holdfast": VERSION}))
        sync_folder(str(path))
        sync_folder(str(root))
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, int])["holdfast"]
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise InvalidValue(
            field="url",
            problem=f"{str(path)!r} is not readable",
            remedy='restore format.json: {"holdfast": 1}',
        ) from error
    if found > VERSION:
        raise StoreTooNew(
            problem=f"{str(root)!r} has format {found}, this program knows {VERSION}",
            found=found,
            known=VERSION,
        )


def _open_index(
    root: Path, bodies: InFiles, fill: Callable[[sqlite3.Connection], None]
) -> sqlite3.Connection:
    """The index, filled anew if it is not there, of another version, or unreadable."""
    path = root / "index.db"
    try:
        conn = schema.connect(str(path), synchronous="NORMAL")
        (version,) = conn.execute("PRAGMA user_version").fetchone()
        if version == schema.VERSION:
            conn.execute("SELECT size FROM files WHERE log = 0").fetchone()
            schema.complete(conn)
            return conn
        conn.close()
    except sqlite3.DatabaseError:
        pass
    for name in ("index.db", "index.db-wal", "index.db-shm"):
        (root / name).unlink(missing_ok=True)
    conn = schema.connect(str(path), synchronous="NORMAL")
    schema.prepare(conn, str(path))
    conn.execute(TABLES)
    _transact(conn, bodies, fill)
    return conn


def _transact(
    conn: sqlite3.Connection, bodies: InFiles, job: Callable[[sqlite3.Connection], None]
) -> None:
    conn.execute("BEGIN IMMEDIATE")
    try:
        bodies.begun(conn)
        job(conn)
        bodies.committing(conn)
        conn.execute("COMMIT")
    except BaseException:
        conn.execute("ROLLBACK")
        bodies.rolled_back()
        raise
    bodies.committed()
