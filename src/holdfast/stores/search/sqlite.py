"""A full-text index in a separate SQLite file next to the database. It uses FTS5 and stores terms,
but no texts.

To remove an event, FTS5 needs its terms; the table `docs` has their checksum. The file can be
deleted at any time, even while it is open, because it can be rebuilt from the logs.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from ...environment import new_id, wall_clock
from ...errors import StoreUnavailable
from ...log.catalog import Row
from ...log.events import Key, Scope
from ...log.search import Condition
from .index import (
    Advance,
    Candidate,
    KeptDoc,
    LogPosition,
    NoIndex,
    no_mark,
)
from .sqlite_entries import (
    SHIFT,
    TooManyTerms,
    add_docs,
    id_at,
    matches,
    meta,
    set_meta,
    tenant_number,
)

T = TypeVar("T")

APPLICATION = 0x486F6C73  # "Hols"
EDITION = 2  # version of the terms and tables; an index with another version is dropped
BUSY_MS = 30_000
BUCKETS = 256
MOST_BROAD = 1_000  # prefixes that are remembered
MOST_FREE = 0.02  # of the pages of the file
LEAST_FREE = 64  # pages
ERASES_AT_ONCE = (3, 42)  # the first version of SQLite that can overwrite removed terms at once
# FTS5 treats every character outside of ASCII as part of a term.
TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE tenants (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE logs (
    id INTEGER PRIMARY KEY, log TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL, session TEXT NOT NULL, thread TEXT NOT NULL,
    seq INTEGER NOT NULL, link TEXT, rewinds TEXT NOT NULL
);
CREATE INDEX logs_session ON logs (tenant, session);
CREATE TABLE docs (
    id INTEGER PRIMARY KEY, log INTEGER NOT NULL, seq INTEGER NOT NULL, crc INTEGER NOT NULL,
    extra TEXT
);
CREATE UNIQUE INDEX docs_seq ON docs (log, seq);
CREATE TABLE buried (
    owner TEXT NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (tenant, session, owner)
) WITHOUT ROWID;
CREATE TABLE epochs (bucket INTEGER PRIMARY KEY, number INTEGER NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(
    terms, content='', detail=none, columnsize=0, tokenize="ascii tokenchars '_:@#='"
);
"""
_LOG = "log, tenant, session, thread, seq, link, rewinds"


class SqliteTextIndex:
    """A full-text index in the SQLite file `path`. A new file gets the permissions of the file
    `like`."""

    def __init__(self, path: str, like: str) -> None:
        self.path = path
        self._like = like
        self._conn: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-search")
        self._closed = False
        self._broad: set[Any] = set()  # tenants and prefixes with which too many terms begin

    async def _run(
        self,
        job: Callable[[sqlite3.Connection], T],
        *,
        create: bool = False,
        transaction: bool = True,
    ) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._connected, _transaction(job) if transaction else job, create
        )

    def _connected(self, job: Callable[[sqlite3.Connection], T], create: bool) -> T:
        try:
            conn = self._open(create=create)
            if conn is None:
                raise NoIndex
            return job(conn)
        except sqlite3.Error as error:
            if "no such module" in str(error):
                raise _NoFts from error
            if _is_damaged(error):
                self._drop()
                raise NoIndex from error
            raise StoreUnavailable(problem=f"the search index is unavailable: {error}") from error

    def _drop(self) -> None:
        """Delete the file of a damaged index, which can be rebuilt from the logs."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    @property
    def keeps_words(self) -> bool:
        return self._file is not None and sqlite3.sqlite_version_info < ERASES_AT_ONCE

    # The file

    def _open(self, *, create: bool) -> sqlite3.Connection | None:
        """Return a connection to the file that currently exists at the path."""
        found = _identity(self.path)
        if self._conn is not None and found != self._file:
            self._conn.close()
            self._conn = None
        if self._conn is None:
            if found is None and not create:
                return None
            self._conn = self._connect(create=create)
            self._file = _identity(self.path)
        return self._conn

    def _connect(self, *, create: bool) -> sqlite3.Connection | None:
        if create:
            mode = os.stat(self._like).st_mode & 0o666
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, mode))
        try:
            conn = _prepared(self.path, create=create)
        except sqlite3.DatabaseError as error:
            if not _is_damaged(error):
                raise
            self._drop()
            conn = self._connect(create=True) if create else None
        return conn

    async def exists(self) -> bool:
        def look() -> bool:
            return self._open(create=False) is not None

        if self._conn is None and not await asyncio.to_thread(os.path.exists, self.path):
            return False
        return await asyncio.get_running_loop().run_in_executor(self._thread, look)

    async def create(self) -> bool:
        try:
            await self._run(lambda conn: None, create=True)
        except _NoFts:
            return False
        return True

    async def reset(self) -> None:
        await self._run(_reset)

    async def optimize(self) -> bool:
        await self._run(lambda conn: conn.execute("INSERT INTO words (words) VALUES ('optimize')"))
        await self._run(lambda conn: conn.execute("VACUUM"), transaction=False)
        return True

    async def aclose(self) -> None:
        def close() -> None:
            if self._conn is not None:
                self._conn.close()
                self._conn = None

        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, close)
            self._thread.shutdown(wait=False)

    # Indexing

    async def claim(self, owner: str, seconds: float) -> bool:
        def claim(conn: sqlite3.Connection) -> bool:
            now = wall_clock()
            holder, _, until = (meta(conn, "claim") or "").rpartition(" ")
            if holder not in ("", owner) and now < int(until) <= now + int(seconds * 2000):
                return False
            set_meta(conn, "claim", f"{owner} {now + int(seconds * 1000)}")
            return True

        return await self._run(claim)

    async def mark(self) -> str:
        return await self._run(lambda conn: meta(conn, "mark") or "")

    async def set_mark(self, mark: str, *, was: str) -> None:
        def set_mark(conn: sqlite3.Connection) -> None:
            if (meta(conn, "mark") or "") == was:
                set_meta(conn, "mark", mark)

        await self._run(set_mark)
        await self._run(_shrink, transaction=False)

    async def tenant(self, name: str) -> int:
        return await self._run(lambda conn: tenant_number(conn, name))

    async def positions(self, rows: Sequence[Row]) -> list[LogPosition]:
        return await self._run(lambda conn: [_position(conn, row.log, row.key) for row in rows])

    async def logs(self) -> list[LogPosition]:
        def logs(conn: sqlite3.Connection) -> list[LogPosition]:
            return [_decoded(record) for record in conn.execute(f"SELECT {_LOG} FROM logs")]

        return await self._run(logs)

    async def add(self, batch: Sequence[Advance]) -> int:
        def add(conn: sqlite3.Connection) -> int:
            return sum(_advance(conn, one) for one in batch)

        return await self._run(add)

    # Searching

    async def find(
        self, tenant: str, wanted: Sequence[Condition], below: int, least: int, limit: int
    ) -> list[Candidate]:
        def find(conn: sqlite3.Connection) -> list[Candidate]:
            places = (id_at(below), id_at(least) - int(meta(conn, "spilled") or 0), limit)
            # An event is likely to have one of very many terms: the newest events without that
            # condition are returned, which are checked in any case.
            fewer = [one for one in wanted if not one.prefix]
            prefixes = (tenant, *(one for one in wanted if one.prefix))
            try:
                found = matches(conn, tenant, fewer if prefixes in self._broad else wanted, places)
            except TooManyTerms:
                if len(self._broad) >= MOST_BROAD:
                    self._broad.clear()
                self._broad.add(prefixes)
                found = matches(conn, tenant, fewer, places)
            return [
                Candidate(id=id << SHIFT, seq=seq, position=_decoded(record))
                for id, seq, *record in found
            ]

        return await self._run(find)

    # Removing

    async def bury(self, scope: Scope, owner: str) -> list[LogPosition]:
        def bury(conn: sqlite3.Connection) -> list[LogPosition]:
            conn.execute(
                "INSERT OR REPLACE INTO buried (owner, tenant, session, at) VALUES (?, ?, ?, ?)",
                (owner, scope.tenant, scope.session, wall_clock()),
            )
            _raise_epoch(conn, scope)
            found = conn.execute(
                f"SELECT {_LOG} FROM logs WHERE tenant = ? AND session = ?",
                (scope.tenant, scope.session),
            )
            return [_decoded(record) for record in found]

        return await self._run(bury)

    async def docs(self, log: str, after: int, limit: int) -> list[KeptDoc]:
        def docs(conn: sqlite3.Connection) -> list[KeptDoc]:
            found = conn.execute(
                "SELECT d.id, d.seq, d.crc, d.extra FROM docs AS d JOIN logs AS l ON l.id = d.log"
                " WHERE l.log = ? AND d.seq > ? ORDER BY d.seq LIMIT ?",
                (log, after, limit),
            )
            return [
                KeptDoc(id=id, log=log, seq=seq, crc=crc, extra=extra)
                for id, seq, crc, extra in found
            ]

        return await self._run(docs)

    async def remove(self, docs: Sequence[tuple[KeptDoc, str]]) -> None:
        def remove(conn: sqlite3.Connection) -> None:
            for doc, terms in docs:
                if conn.execute("DELETE FROM docs WHERE id = ?", (doc.id,)).rowcount:
                    conn.execute(
                        "INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)",
                        (doc.id, terms),
                    )

        await self._run(remove)

    async def unbury(
        self, scope: Scope, owner: str, *, gone: Sequence[str], again: Sequence[str]
    ) -> bool:
        def unbury(conn: sqlite3.Connection) -> bool:
            was = conn.execute(
                "DELETE FROM buried WHERE tenant = ? AND session = ? AND owner = ?",
                (scope.tenant, scope.session, owner),
            ).rowcount
            _raise_epoch(conn, scope)
            for log in again:
                conn.execute(
                    "UPDATE logs SET seq = 0, link = NULL, rewinds = '[]' WHERE log = ?", (log,)
                )
            if again:
                set_meta(conn, "mark", no_mark())  # so that the indexer checks these logs
            left = False
            for log in gone:
                (docs,) = conn.execute(
                    "SELECT EXISTS (SELECT 1 FROM docs AS d JOIN logs AS l ON l.id = d.log"
                    " WHERE l.log = ?)",
                    (log,),
                ).fetchone()
                left = left or bool(docs)
                conn.execute("DELETE FROM logs WHERE log = ?", (log,))
            if left:
                _reset(conn)  # the terms of these events can no longer be computed
            return bool(was)

        return await self._run(unbury)

    async def abandoned(self, before: int) -> list[tuple[Scope, str]]:
        def abandoned(conn: sqlite3.Connection) -> list[tuple[Scope, str]]:
            found = conn.execute(
                "SELECT tenant, session, owner FROM buried WHERE at < ?", (before,)
            )
            return [(Scope(tenant, session), owner) for tenant, session, owner in found]

        return await self._run(abandoned)


class _NoFts(Exception):
    """This SQLite was built without FTS5."""


def _transaction(job: Callable[[sqlite3.Connection], T]) -> Callable[[sqlite3.Connection], T]:
    """Return a job that runs in a transaction."""

    def run(conn: sqlite3.Connection) -> T:
        conn.execute("BEGIN IMMEDIATE")
        try:
            done = job(conn)
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
        return done

    return run


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_damaged(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _prepared(path: str, *, create: bool) -> sqlite3.Connection | None:
    """Open the file, and create the tables. The tables of an index of another `EDITION` are dropped
    first."""
    conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        conn.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        conn.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new file
        # Overwrite removed data, and keep no copy of it in a journal for long.
        conn.execute("PRAGMA secure_delete = ON")
        conn.execute("PRAGMA journal_mode = TRUNCATE")
        conn.execute("PRAGMA synchronous = NORMAL")
        conn.execute("BEGIN IMMEDIATE")
        (edition,) = conn.execute("PRAGMA user_version").fetchone()
        if edition != EDITION:
            tables = conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            if not (create or tables):
                conn.execute("ROLLBACK")
                conn.close()
                return None
            if ("words",) in tables:
                conn.execute("DROP TABLE words")
            for (name,) in conn.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            ).fetchall():
                conn.execute(f'DROP TABLE "{name}"')
            _create(conn)
        conn.execute("COMMIT")
    except BaseException:
        conn.close()
        raise
    return conn


def _create(conn: sqlite3.Connection) -> None:
    for statement in TABLES.split(";\n"):
        conn.execute(statement)
    if sqlite3.sqlite_version_info >= ERASES_AT_ONCE:
        conn.execute("INSERT INTO words (words, rank) VALUES ('secure-delete', 1)")
    set_meta(conn, "identity", new_id())
    set_meta(conn, "mark", no_mark())
    conn.execute(f"PRAGMA application_id = {APPLICATION}")
    conn.execute(f"PRAGMA user_version = {EDITION}")


def _reset(conn: sqlite3.Connection) -> None:
    conn.execute("INSERT INTO words (words) VALUES ('delete-all')")
    for table in ("logs", "docs", "tenants"):
        conn.execute(f"DELETE FROM {table}")
    set_meta(conn, "spilled", "0")
    set_meta(conn, "identity", new_id())
    set_meta(conn, "mark", no_mark())


def _shrink(conn: sqlite3.Connection) -> None:
    """Return free pages to the file system, if there are many: FTS5 leaves them when it merges."""
    (pages,) = conn.execute("PRAGMA page_count").fetchone()
    (free,) = conn.execute("PRAGMA freelist_count").fetchone()
    if free > max(pages * MOST_FREE, LEAST_FREE):
        conn.executescript("PRAGMA incremental_vacuum")  # `execute` returns one page alone


def _epoch(conn: sqlite3.Connection, scope: Scope) -> str | None:
    """Return the epoch of a session, or None while events of the session are being removed."""
    names = (scope.tenant, scope.session)
    if conn.execute("SELECT 1 FROM buried WHERE tenant = ? AND session = ?", names).fetchone():
        return None
    found = conn.execute("SELECT number FROM epochs WHERE bucket = ?", (_bucket(scope),)).fetchone()
    return f"{meta(conn, 'identity')}/{found[0] if found else 0}"


def _raise_epoch(conn: sqlite3.Connection, scope: Scope) -> None:
    conn.execute(
        "INSERT INTO epochs (bucket, number) VALUES (?, 1)"
        " ON CONFLICT (bucket) DO UPDATE SET number = number + 1",
        (_bucket(scope),),
    )


def _bucket(scope: Scope) -> int:
    return zlib.crc32(f"{scope.tenant}\n{scope.session}".encode()) % BUCKETS


def _position(conn: sqlite3.Connection, log: str, key: Key) -> LogPosition:
    epoch = _epoch(conn, key.scope)
    found = conn.execute(f"SELECT {_LOG} FROM logs WHERE log = ?", (log,)).fetchone()
    if found is None:
        return LogPosition(log=log, key=key, epoch=epoch)
    return msgspec.structs.replace(_decoded(found), epoch=epoch)


def _decoded(record: Sequence[Any]) -> LogPosition:
    log, tenant, session, thread, seq, link, rewinds = record
    return LogPosition(
        log=log,
        key=Key(tenant, session, thread),
        seq=seq,
        link=link,
        rewinds=msgspec.json.decode(rewinds, type=tuple[tuple[int, int], ...]),
    )


def _advance(conn: sqlite3.Connection, advance: Advance) -> bool:
    """Write the index entries of a log's next events. Returns False if the log's position or epoch
    has changed."""
    before, after = advance.before, advance.after
    if before.epoch is None or _position(conn, before.log, before.key) != before:
        return False
    key = after.key
    conn.execute(
        "INSERT INTO logs (log, tenant, session, thread, seq, link, rewinds)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (log) DO UPDATE"
        " SET seq = excluded.seq, link = excluded.link, rewinds = excluded.rewinds",
        (
            after.log,
            *(key.tenant, key.session, key.thread),
            *(after.seq, after.link, msgspec.json.encode(after.rewinds).decode()),
        ),
    )
    (log,) = conn.execute("SELECT id FROM logs WHERE log = ?", (after.log,)).fetchone()
    add_docs(conn, log, advance)
    return True
