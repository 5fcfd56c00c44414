"""`SqliteStore`: a store in one SQLite file, which any number of processes can use.

Each method runs a function of `log`, `records`, `queries` or `remove`, or of the package `sql`,
inside a transaction. Methods that write use a transaction of the writer, the others a transaction
of a reader.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ...environment import wall_clock
from ...errors import InvalidValue, StoreDamaged
from ...file_lock import FileLock
from ...log import catalog
from ...log.catalog import Project, Row
from ...log.codec import LIMITS
from ...log.events import Event, Key, Scope
from ...values.records import Receipt, Remains
from ...values.stream_items import CaughtUp
from ..base import BaseStore
from ..blobs import blob_name
from ..notify import Wakes, follow
from ..paging import Fetch
from ..port import BlobRef, Damage, Durability, Lease, StoreInfo
from ..rules import APART, AppendRequest, Extension
from ..search import TextSearch
from ..search.sqlite import SqliteTextIndex
from ..sql import history
from ..sql.history import Restore
from ..sql.tables import completed
from ..url_options import check_path, read_option
from . import log as logs
from . import queries, records, remove, schema, verification
from .changes import changed_logs
from .identity import DatabaseFile, inode, replaced
from .payloads import PayloadStorage
from .readers import Readers
from .tables import SqliteTables
from .transaction import reads, writes
from .writer import Reopen, SqliteWriter

MODE = 0o600  # permissions of a file that is created: only its owner
SYNCHRONOUS = {"process": "NORMAL", "machine": "FULL"}


class SqliteStore(BaseStore[Restore]):
    """A store in one SQLite file. Open it with `holdfast.connect("sqlite:PATH")`."""

    kind = "sqlite"

    def __init__(
        self,
        path: str,
        *,
        durability: Durability,
        conn: sqlite3.Connection,
        lock: FileLock,
        file: DatabaseFile,
        payloads: PayloadStorage,
        project: Project,
        clock: Callable[[], int],
        reopen: Reopen | None = None,
    ) -> None:
        self._path = path
        self._file = file
        self._durability: Durability = durability
        self._project = project
        self._clock = clock
        self._lock = lock
        self._payloads = payloads
        self._closed = False
        self._wakes = Wakes()
        self._writer = SqliteWriter(
            conn,
            lock,
            payloads,
            file,
            reopen=reopen,
            watching=lambda: bool(self._wakes),
            changed=self._wakes.wake_all,
        )
        self._readers = Readers(self._connect, file, self._writer)
        index = SqliteTextIndex(self._search_path(), like=file.path)
        self._texts: TextSearch = TextSearch(self, index, self._changed_logs)

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        durability: str = "machine",
        mode: int = MODE,
        project: Project = catalog.project,
        clock: Callable[[], int] = wall_clock,
    ) -> SqliteStore:
        """Open the file, and create or migrate it if necessary. Many processes may do this at once.
        `mode` is the permissions of a new file and of the files that belong to it."""
        level: Durability = read_option("sqlite", "durability", durability)
        private = read_option("sqlite", "mode", f"{mode:04o}")
        name = check_path(os.fspath(path))
        file = await asyncio.to_thread(DatabaseFile, name)
        conn, lock = await asyncio.to_thread(_open, file, SYNCHRONOUS[level], private)
        return cls(
            name,
            durability=level,
            conn=conn,
            lock=lock,
            file=file,
            payloads=PayloadStorage(),
            project=project,
            clock=clock,
        )

    def _search_path(self) -> str:
        """Return the path of the full-text index, which can be removed at any time."""
        return f"{self._file.path}.search"

    def _connect(self) -> sqlite3.Connection:
        return schema.connect(self._file.path, synchronous="NORMAL")

    def _tables(self, conn: sqlite3.Connection) -> SqliteTables:
        return SqliteTables(conn, self._payloads, self._writer.recent, self._project, self._clock)

    # The log

    async def _append(self, request: AppendRequest) -> Extension:
        return await self._writer.run(
            lambda conn: logs.append(self._tables(conn), request),
            size=request.size,
            tidy=True,
            done=partial(self._wakes.tell, request.key),
        )

    def _fetch(self) -> Fetch:
        return self._page

    _page = reads(logs.read_page)
    seqs = reads(logs.seqs)
    locate = reads(queries.locate)
    link = reads(completed(history.link_of))

    def follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        return follow(self, self._wakes, key, after, log, begun=self._writer.watch)

    fork = writes(completed(history.fork))
    _begin_restore = writes(completed(history.begin_restore))
    _restore_some = writes(completed(history.restore_some))
    _end_restore = writes(completed(history.end_restore))
    _erase = writes(completed(history.erase))

    async def _discard(self, restore: Restore, error: BaseException) -> None:
        async def discard() -> None:
            await self._writer.run(partial(remove.discard, log=restore.log))
            await self._sweep(None)

        await asyncio.shield(discard())

    def _restored(self, key: Key) -> None:
        self._wakes.wake(key)

    async def _hide(
        self, target: Scope | Key, fence: Lease | None, expected: int | None
    ) -> tuple[Counter[str], list[str]]:
        removed, rows = await self._writer.run(
            lambda conn: remove.hide(conn, self._payloads, target, fence, expected)
        )
        for row in rows:
            self._wakes.wake(row.key)
        return removed, [row.log for row in rows]

    async def _sweep(self, scope: Scope | None) -> None:
        while await self._writer.run(
            lambda conn: remove.sweep(conn, self._payloads, self._clock())
        ):
            pass

    _shared_still = reads(remove.shared_still)
    _changed_logs = reads(changed_logs)

    def _left_behind(self) -> tuple[Remains, ...]:
        return (
            Remains(
                where=self._path,
                what="old pages, until SQLite overwrites them with changed pages",
                remedy="holdfast purge",
            ),
            Remains(
                where=f"{self._path}-wal",
                what="copies of changed pages, until SQLite overwrites them",
                remedy="holdfast purge",
            ),
            *self._texts.left_behind(self._search_path()),
        )

    # The catalog

    async def row(self, key: Key) -> Row | None:
        entry = await self._readers.run_soon(lambda conn: logs.lookup(conn, key))
        return entry.row if entry else None

    rows = reads(queries.rows)
    find = reads(queries.find)
    pending = reads(queries.pending)
    claim = writes(records.claim)
    unclaim = writes(records.unclaim)
    claims = reads(records.claims)

    # Driving

    runnable = reads(queries.runnable)
    due_tenants = reads(queries.due_tenants)
    holder = reads(records.holder)
    acquire = writes(records.acquire, tidy=True)
    renew = writes(records.renew, tidy=True)
    release = writes(records.release, tidy=True)

    async def put_draft(
        self, key: Key, message: str, offset: int, text: str, *, fence: Lease
    ) -> None:
        await self._writer.run(
            lambda conn: records.put_draft(self._tables(conn), key, message, offset, text, fence),
            size=len(text),
            tidy=True,
        )

    drafts = reads(records.drafts)

    # Blobs and snapshots

    async def put_blob(self, scope: Scope, data: bytes, *, sha256: str | None = None) -> BlobRef:
        name = blob_name(data, sha256)
        return await self._writer.run(
            lambda conn: records.put_blob(self._tables(conn), scope, data, name),
            size=len(data),
        )

    get_blob = reads(records.get_blob)
    blobs = reads(records.blobs)
    save_snapshot = writes(records.save_snapshot)
    load_snapshot = reads(records.load_snapshot)

    # Upkeep

    async def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        damaged = await self._check_file() if target is None else []
        for damage in damaged:
            yield damage
        try:
            found = await self._readers.run(lambda conn: verification.logs_of(conn, target))
        except StoreDamaged as error:
            if (damage := verification.malformed(error)) not in damaged:
                yield damage
            return
        for log, key in found:
            for damage in await self._check_log(log, key, repair=repair):
                yield damage

    async def _check_file(self) -> list[Damage]:
        """Return the problems that SQLite's integrity check finds in the file."""
        try:
            return await self._readers.run(lambda conn: list(verification.check_file(conn)))
        except StoreDamaged as error:
            return [verification.malformed(error)]

    async def _check_log(self, log: str, key: Key, *, repair: bool) -> list[Damage]:
        check = partial(verification.check_log, log=log)
        found: list[Damage] = []
        try:
            if found := await self._readers.run(
                lambda conn: check(self._tables(conn), repair=False)
            ):
                # A file may be rewritten while it is read, but not while the writer checks it.
                found = await self._writer.run(
                    lambda conn: check(self._tables(conn), repair=repair)
                )
        except StoreDamaged as error:
            found.append(verification.malformed(error, key))
        return found

    async def purge(self) -> Receipt:
        await self._sweep(None)
        await self._texts.purge()
        return await self._writer.run_alone(self._vacuum)

    def _vacuum(self, conn: sqlite3.Connection) -> Receipt:
        before = os.path.getsize(self._file.path)
        conn.execute("VACUUM")
        # A short timeout: the checkpoint blocks all writers while it waits for readers.
        conn.execute("PRAGMA busy_timeout = 1000")
        try:
            busy, *_ = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            conn.execute(f"PRAGMA busy_timeout = {schema.BUSY_MS}")
        removed = {"bytes": max(0, before - os.path.getsize(self._file.path))}
        return Receipt(removed=removed, remains=self._left_behind() if busy else ())

    def info(self) -> StoreInfo:
        return StoreInfo(
            kind=self.kind,
            location=self._path,
            durability=self._durability,
            schema=schema.VERSION,
            limits=LIMITS,
            apart=APART,
            lease_with_append=True,
        )

    async def aclose(self) -> None:
        await self._texts.aclose()
        await self._readers.aclose()
        self._wakes.wake_all()
        await self._writer.finish()
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._leave)
            self._lock.close()

    def _leave(self) -> None:
        """Close the writer's connection. Subclasses close other resources too."""
        self._writer.close()


def _open(file: DatabaseFile, synchronous: str, mode: int) -> tuple[sqlite3.Connection, FileLock]:
    path = file.path
    with schema.translated(path), ExitStack() as undo:
        schema.folder_of(path)
        if Path(path).is_dir():
            raise InvalidValue(
                field="url", problem=f"{path!r} is a folder", remedy="pass the path of a file"
            )
        lock = FileLock(path + ".lock", mode=_mode_of(path, mode))
        undo.callback(lock.close)
        with lock, schema.opening(path):
            fresh = file.make(mode)
            before = inode(path)
            conn = schema.connect(path, synchronous=synchronous)
            undo.callback(conn.close)
            schema.prepare(conn, path)
            if not file.remember(conn, before):
                raise replaced(path)
            if fresh and synchronous == "FULL":
                sync_folder(path)
        undo.pop_all()
    return conn, lock


def _mode_of(path: str, mode: int) -> int:
    """Return the permissions of the file at `path`, or `mode` if it does not exist."""
    try:
        return os.stat(path).st_mode & 0o666
    except FileNotFoundError:
        return mode


def sync_folder(path: str) -> None:
    """Fsync the folder of a file, so that new file names in it are durable."""
    folder = os.open(schema.folder_of(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
