"""Payload storage: in the database, or in files that it indexes.

`PayloadStorage` is the interface between the SQLite store, whose tables are authoritative, and the
file store, whose tables are an index of JSON lines. Every method runs inside the caller's
transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Raw

from ...log.catalog import Row
from ...log.events import Event, Key, Scope
from .. import rules
from ..frames import FRAME, packed, spoiled, unpacked
from ..rules import APART, Extension, LeaseState

Record = tuple[Any, ...]  # seq, id, kind, v, run, actor, cause, at, data, hash


class SqliteLogEntry(NamedTuple):
    """A log as stored in the `logs` table."""

    id: int
    base: int | None
    shared: int
    lease: LeaseState
    row: Row
    drafts: bool = True
    """Whether the log may have drafts."""


class KeptHash(NamedTuple):
    """What is stored with an event: its hash and its link."""

    hash: bytes
    link: bytes | None


Recent = dict[Key, SqliteLogEntry]  # the logs that were written last, cached for the next write


class PayloadStorage(Protocol):
    """Stores the data of events and blobs, and changes that are not part of a log."""

    lossy: bool
    """Whether a placeholder can replace a lost event."""

    def forget(self) -> None:
        """Drop what is cached of the tables: another process may have written."""
        ...

    def begun(self, conn: sqlite3.Connection) -> bool:
        """A transaction of the writer began; returns whether that changed the tables."""
        ...

    def committing(self, conn: sqlite3.Connection) -> None:
        """The transaction is about to be committed: make the writes durable."""
        ...

    def committed(self) -> None:
        """The transaction is durable: replaced data may be removed."""
        ...

    def rolled_back(self) -> None:
        """The transaction failed: undo the writes."""
        ...

    def current(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> SqliteLogEntry:
        """The current state of the log, before something is appended to it."""
        ...

    def put(self, conn: sqlite3.Connection, entry: SqliteLogEntry, plan: Extension) -> list[bytes]:
        """The content of the `data` column for new events. A call of `keep` follows, unless one of
        their ids turns out to be known."""
        ...

    def keep(self, conn: sqlite3.Connection) -> None:
        """Store the data of the events that were passed to `put` last."""
        ...

    def get(
        self, conn: sqlite3.Connection, log: int, key: Key, records: Sequence[Record]
    ) -> Iterable[Event]:
        """The events of some records of one log; `LogDamaged` at the first unreadable one."""
        ...

    def erasing(self, conn: sqlite3.Connection, parts: dict[int, list[int]], reason: str) -> None:
        """These numbers of these logs are about to be erased, all or none."""
        ...

    def replace(
        self, conn: sqlite3.Connection, log: int, data: Raw, kept: dict[int, KeptHash]
    ) -> None:
        """Replace the data of some events, together with the hash and link stored for each."""
        ...

    def finish(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        """A restored log is complete."""
        ...

    def hide(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        """A log was deleted; what its forks share is still needed."""
        ...

    def trim(self, conn: sqlite3.Connection, log: int, kept: int | None) -> None:
        """The events of a deleted log after `kept` are removed; with None, the whole log is."""
        ...

    def put_blob(self, scope: Scope, sha256: str, data: bytes) -> bytes:
        """Store a blob; returns the content of its `data` column."""
        ...

    def get_blob(self, scope: Scope, sha256: str, column: bytes) -> bytes:
        """The bytes of a blob; empty if they are missing."""
        ...

    def hide_scope(self, conn: sqlite3.Connection, scope: Scope) -> None:
        """A session lost its last thread, and with it its blobs."""
        ...

    def claimed(
        self, conn: sqlite3.Connection, tenant: str, name: str, session: str | None
    ) -> None:
        """A session claimed a name, or released it."""
        ...


class TablePayloads:
    """Bytes after a format byte: `j` is a CRC-32 and JSON, `p` says that the data is in `payloads`,
    `b` is a blob. `s` is never stored: it marks the stub that a reader gets for a payload stored
    apart. Every read checks the CRC; `verify` checks the event's SHA-256, which costs more."""

    lossy = False

    def forget(self) -> None:
        pass

    def begun(self, conn: sqlite3.Connection) -> bool:
        return False

    def committing(self, conn: sqlite3.Connection) -> None:
        pass

    def committed(self) -> None:
        pass

    def rolled_back(self) -> None:
        pass

    def current(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> SqliteLogEntry:
        return entry

    def put(self, conn: sqlite3.Connection, entry: SqliteLogEntry, plan: Extension) -> list[bytes]:
        columns = []
        for event in plan.fresh:
            if len(event.data) > APART:
                conn.execute(
                    "INSERT INTO payloads (log, seq, data) VALUES (?, ?, ?)",
                    (entry.id, event.seq, packed(event.data)),
                )
                columns.append(b"p" + rules.apart(event))
            else:
                columns.append(packed(event.data))
        return columns

    def keep(self, conn: sqlite3.Connection) -> None:
        pass

    def get(
        self, conn: sqlite3.Connection, log: int, key: Key, records: Sequence[Record]
    ) -> Iterable[Event]:
        for record in records:
            data = record[8]
            if data[:1] == b"p":
                (data,) = conn.execute(
                    "SELECT data FROM payloads WHERE log = ? AND seq = ?", (log, record[0])
                ).fetchone() or (b"",)
            if data[:1] == b"s":
                yield event_of(record, data[1:])
            elif (sound := unpacked(data)) is not None:
                yield event_of(record, sound)
            else:
                raise spoiled(key, event_of(record, data[FRAME:]))

    def erasing(self, conn: sqlite3.Connection, parts: dict[int, list[int]], reason: str) -> None:
        pass

    def replace(
        self, conn: sqlite3.Connection, log: int, data: Raw, kept: dict[int, KeptHash]
    ) -> None:
        column = packed(data)
        for seq, (hash, link) in kept.items():
            conn.execute(
                "UPDATE events SET data = ?, hash = ?, link = ? WHERE log = ? AND seq = ?",
                (column, hash, link, log, seq),
            )
            conn.execute("DELETE FROM payloads WHERE log = ? AND seq = ?", (log, seq))

    def finish(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        pass

    def hide(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        pass

    def trim(self, conn: sqlite3.Connection, log: int, kept: int | None) -> None:
        conn.execute("DELETE FROM payloads WHERE log = ? AND seq > ?", (log, kept or 0))

    def put_blob(self, scope: Scope, sha256: str, data: bytes) -> bytes:
        return b"b" + data

    def get_blob(self, scope: Scope, sha256: str, column: bytes) -> bytes:
        return column[1:]

    def hide_scope(self, conn: sqlite3.Connection, scope: Scope) -> None:
        pass

    def claimed(
        self, conn: sqlite3.Connection, tenant: str, name: str, session: str | None
    ) -> None:
        pass


def event_of(record: Record, data: bytes) -> Event:
    """An event, from its record and its data."""
    seq, id, kind, v, run, actor, cause, at, _, _ = record
    return Event(
        kind=kind, data=Raw(data), id=id, v=v, run=run, actor=actor, cause=cause, seq=seq, at=at
    )
