"""`FileStore`: a store in a folder of JSON lines, which any number of processes can use.

The lines are authoritative. `index.db` in the same folder is an index of them, which you can delete
at any time: processes that have the folder open notice this, and rebuild the index. The methods of
the store are inherited from the SQLite store.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ...environment import wall_clock
from ...errors import InvalidValue, StoreDamaged, StoreTooNew
from ...file_lock import FileLock, held
from ...log import catalog
from ...log.catalog import Project
from ...log.events import Key, Scope, new_id
from ...values.records import Receipt, Remains
from ..paging import Page, ReadBounds
from ..port import Damage, Durability, StoreInfo
from ..sqlite import schema, verification
from ..sqlite.identity import DatabaseFile, Inode, inode, replaced
from ..sqlite.store import SqliteStore, sync_folder
from ..url_options import check_path, read_option
from .folder import StoreFolder
from .index import TABLES, Index
from .payloads import FilePayloads
from .recovery import Recovery

logger = logging.getLogger("holdfast.file")

VERSION = 1
TRIES = 5  # attempts to create an index that other processes remove meanwhile
MADE = "CREATE TABLE IF NOT EXISTS made (inode TEXT NOT NULL)"  # to detect a copied index


class FileStore(SqliteStore):
    """A store that keeps sessions in files of JSON lines. Open it with
    `holdfast.connect("file:DIR")`."""

    kind = "file"

    def __init__(
        self,
        location: str,
        folder: StoreFolder,
        index: Index,
        recovery: Recovery,
        presence: Presence,
        **rest: Any,
    ) -> None:
        super().__init__(str(folder.root / "index.db"), **rest)
        self._location = location
        self._folder = folder
        self._index = index
        self._files: FilePayloads = rest["payloads"]
        self._recovery = recovery
        self._presence = presence

    @classmethod
    async def open(  # type: ignore[override]  # its files are always private: it takes no mode
        cls,
        path: str | os.PathLike[str],
        *,
        durability: str = "machine",
        project: Project = catalog.project,
        clock: Callable[[], int] = wall_clock,
    ) -> FileStore:
        """Open the folder, and create it if it does not exist. Many processes may do this at
        once."""
        level: Durability = read_option("file", "durability", durability)
        location = check_path(os.fspath(path))
        root = Path(await asyncio.to_thread(os.path.abspath, location))
        folder = StoreFolder(root, sync=level == "machine")
        files = Index(folder, project)
        payloads = FilePayloads(folder, project, files)
        recovery = Recovery(folder, files, payloads)
        file = await asyncio.to_thread(DatabaseFile, str(root / "index.db"))
        opening = FolderOpener(root, file, recovery, payloads)
        conn, lock, presence = await asyncio.to_thread(opening.open)
        return cls(
            location,
            folder,
            files,
            recovery,
            presence,
            durability=level,
            conn=conn,
            lock=lock,
            file=file,
            payloads=payloads,
            project=project,
            clock=clock,
            reopen=partial(opening.reopen, lock),
        )

    async def _page(self, key: Key, bounds: ReadBounds) -> Page:
        page = await super()._page(key, bounds)
        if page[2] is not None:
            # The file may have been rewritten between the lookup in the index and the read: update
            # the index from the file, and try again.
            await self._writer.run(lambda conn: self._index.check_line(conn, key))
            page = await super()._page(key, bounds)
        return page

    def _search_path(self) -> str:
        return str(Path(self._file.path).with_name("search.db"))

    async def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        index = await self._check_file() if target is None else []
        if index and repair:
            await self._writer.rebuild(StoreDamaged(problem=index[0].detail))
        for damage in index:
            detail = f"{self._file.path}: {damage.detail}; you can delete this file at any time"
            yield msgspec.structs.replace(damage, detail=detail, repaired=repair)
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
        for log, key in await self._readers.run(lambda conn: verification.logs_of(conn, target)):
            for damage in await self._check_log(log, key, repair=repair):
                yield damage

    async def purge(self) -> Receipt:
        await self._writer.run(self._recovery.tidy)
        return await super().purge()

    def _left_behind(self) -> tuple[Remains, ...]:
        journal = Remains(
            where=str(self._folder.journal),
            what="names that deleted sessions had claimed",
            remedy="holdfast purge",
        )
        return (journal, *super()._left_behind())

    def info(self) -> StoreInfo:
        return msgspec.structs.replace(super().info(), location=self._location, schema=VERSION)

    async def aclose(self) -> None:
        await super().aclose()
        self._folder.close()

    def _leave(self) -> None:
        # Closed under the lock: as long as a process is in `open/`, the files of the index exist.
        with self._lock:
            super()._leave()
            self._presence.end()


class Presence:
    """Detects crashes: each process that has the folder open holds a locked file in `open/`, and
    removes it when it closes the store. A file without a lock was left by a process that
    crashed."""

    def __init__(self, root: Path) -> None:
        self._path = root / "open" / new_id()
        self._lock = FileLock(str(self._path))
        self._lock.__enter__()
        sync_folder(str(self._path))  # otherwise a power loss could drop the mark but not the index

    def end(self) -> None:
        self._path.unlink(missing_ok=True)
        self._lock.close()


class FolderOpener:
    """Opens the folder and its index, and reopens the index when its files were replaced."""

    def __init__(
        self, root: Path, file: DatabaseFile, recovery: Recovery, payloads: FilePayloads
    ) -> None:
        self._root = root
        self._file = file
        self._recovery = recovery
        self._payloads = payloads

    def open(self) -> tuple[sqlite3.Connection, FileLock, Presence]:
        """Open the folder, and create it if it does not exist."""
        root = self._root
        with schema.translated(self._file.path), ExitStack() as undo:
            schema.folder_of(str(root))
            if root.exists() and not root.is_dir():
                raise InvalidValue(
                    field="url",
                    problem=f"{str(root)!r} is not a folder",
                    remedy="pass the path of a folder",
                )
            lock = _locked(root)
            undo.callback(lock.close)
            with ExitStack() as held:
                held.push(lock)
                _check_format(root)
                for folder in (root / "logs", root / "blobs", root / "open"):
                    folder.mkdir(exist_ok=True, mode=0o700)
                live, dead = _present(root)
                # As long as a live process is in `open/`, all files of the index exist.
                conn = self._index(
                    rebuild=bool(live) and not self._file.is_whole(), recover=False, dead=dead
                )
                undo.callback(conn.close)
                presence = Presence(root)
            undo.pop_all()
        return conn, lock, presence

    def reopen(self, lock: FileLock, rebuild: bool) -> sqlite3.Connection:
        """Reopen the index, under the lock, and update it from the files. If only some of the files
        of the index were replaced, they do not belong together, and the index is rebuilt."""
        root = self._root
        if not lock.is_at(str(root)) or not (root / "format.json").exists():
            raise replaced(str(root))
        rebuild = rebuild or self._file.is_partly_replaced()
        with schema.translated(self._file.path):
            conn = self._index(rebuild=rebuild, recover=True, dead=_present(root)[1])
        what = "is rebuilt" if rebuild else "was removed or replaced: it is opened again"
        logger.warning("%s %s", self._file.path, what)
        return conn

    def _index(self, *, rebuild: bool, recover: bool, dead: list[Path]) -> sqlite3.Connection:
        """Open the index. It is rebuilt if `rebuild` is true, or if it is missing, unreadable or of
        another version. It is updated if `recover` is true, after a crash, or if it is a copy."""
        conn = None if rebuild else self._whole(recover=recover, dead=bool(dead))
        for left in reversed(range(TRIES)):
            if conn is None:
                conn = self._new(dead=bool(dead), last=not left)
        assert conn is not None
        for path in dead:
            path.unlink(missing_ok=True)
        return conn

    def _whole(self, *, recover: bool, dead: bool) -> sqlite3.Connection | None:
        """Open the existing index. Returns None if the index cannot be used."""
        before = inode(self._file.path)
        if before is None:
            return None
        has_log = self._file.has_log()
        with ExitStack() as undo:
            try:
                conn = schema.connect(self._file.path, synchronous="NORMAL")
                undo.callback(conn.close)
                (version,) = conn.execute("PRAGMA user_version").fetchone()
                if version != schema.VERSION:
                    return None
                conn.execute("SELECT size FROM files WHERE log = 0").fetchone()
                schema.complete(conn)
                conn.execute(MADE)
                is_copy = not _is_made_here(conn, before)
                if is_copy and has_log:
                    return None  # it may belong to another file
                if dead or recover or is_copy:
                    fill = self._recovery.recover if dead else self._recovery.rebuild
                    _fill(conn, self._payloads, fill, before)
                if not self._file.remember(conn, before):
                    return None
            except sqlite3.DatabaseError as error:
                known = not isinstance(error, sqlite3.OperationalError) or _is_no_index(error)
                if known or self._is_gone(before):
                    return None
                raise
            undo.pop_all()
        return conn

    def _new(self, *, dead: bool, last: bool) -> sqlite3.Connection | None:
        """Create an index and fill it from all files. Returns None if the index was removed
        meanwhile, unless this is the `last` try. A full disk looks like a removal, because files of
        the index are missing."""
        self._file.remove()
        self._file.make(0o600)
        before = inode(self._file.path)
        with ExitStack() as undo:
            try:
                conn = schema.connect(self._file.path, synchronous="NORMAL")
                undo.callback(conn.close)
                schema.prepare(conn, self._file.path)
                conn.execute(TABLES)
                conn.execute(MADE)
                recovery = self._recovery
                fill = recovery.rebuild_after_crash if dead else recovery.rebuild
                _fill(conn, self._payloads, fill, before)
                if not self._file.remember(conn, before):
                    if last:
                        raise replaced(self._file.path)
                    return None
            except sqlite3.DatabaseError:
                if not last and self._is_gone(before):
                    return None
                raise
            undo.pop_all()
        return conn

    def _is_gone(self, before: Inode | None) -> bool:
        """Return whether files of the index were removed or replaced while it was opened."""
        return inode(self._file.path) != before or not self._file.is_whole()


def _locked(root: Path) -> FileLock:
    """Acquire a lock on the folder. Create the folder if it does not exist, or was removed during
    the wait. The lock is on the folder and not on a file in it, which could be removed together
    with the index."""
    while True:
        root.mkdir(exist_ok=True, mode=0o700)
        try:
            lock = FileLock(str(root), folder=True)
        except FileNotFoundError:
            continue
        lock.__enter__()
        if lock.is_at(str(root)):
            return lock
        lock.__exit__(None, None, None)
        lock.close()


def _check_format(root: Path) -> None:
    path = root / "format.json"
    if not path.exists():
        if any(root.glob("logs/*")) or (root / "index.db").exists():
            raise InvalidValue(
                field="url",
                problem=f"folder {str(root)!r} looks like a store, but format.json is missing",
                remedy='restore it with the content {"holdfast": 1}, or use another folder',
            )
        StoreFolder(root, sync=True).replace(path, msgspec.json.encode({"holdfast": VERSION}))
        sync_folder(str(path))
        sync_folder(str(root))
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, int])["holdfast"]
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise InvalidValue(
            field="url",
            problem=f"{str(path)!r} is damaged",
            remedy='restore it with the content {"holdfast": 1}',
        ) from error
    if found > VERSION:
        raise StoreTooNew(
            problem=f"{str(root)!r} has format {found}, but this release supports only {VERSION}",
            found=found,
            known=VERSION,
        )


def _present(root: Path) -> tuple[list[Path], list[Path]]:
    """Return the files in `open/` of processes that have the folder open, and those of processes
    that did not close it properly."""
    found: tuple[list[Path], list[Path]] = ([], [])
    for path in (root / "open").iterdir():
        found[not held(str(path))].append(path)
    return found


def _is_made_here(conn: sqlite3.Connection, file: Inode) -> bool:
    """Return whether the index was built in this file. If not, the file is a copy of another
    index."""
    return conn.execute("SELECT inode FROM made").fetchall() == [(str(file[1]),)]


def _is_no_index(error: sqlite3.OperationalError) -> bool:
    """Return whether the error means that a table is missing. A database that is busy or cannot be
    opened must not be replaced."""
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR


def _fill(
    conn: sqlite3.Connection,
    payloads: FilePayloads,
    fill: Callable[[sqlite3.Connection], None],
    file: Inode | None,
) -> None:
    """Update the index from all files, in one transaction."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        payloads.begun(conn)
        fill(conn)
        payloads.committing(conn)
        conn.execute("DELETE FROM made")
        conn.execute("INSERT INTO made VALUES (?)", (str(file and file[1]),))
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        payloads.rolled_back()
        raise
    payloads.committed()
