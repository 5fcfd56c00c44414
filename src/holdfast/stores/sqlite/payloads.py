"""Where the bodies of things are kept: in the database, or in files that it indexes.

`PayloadStorage` is the seam between the SQLite store, whose tables are the truth, and the
file store, whose tables are an index over lines of JSON. Every method runs inside
the caller's transaction.
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
    """A log as the `logs` table has it."""

    id: int
    base: int | None
    shared: int
    lease: LeaseState
    row: Row
    drafts: bool = True
    """Whether it may have some."""


class KeptHash(NamedTuple):
    """What is stored with an event: its hash and its link."""

    hash: bytes
    link: bytes | None


Recent = dict[Key, SqliteLogEntry]  # the logs that were written last, for whoever writes next


class PayloadStorage(Protocol):
    """Stores the data of events and blobs, and changes that are not part of a log."""

    lossy: bool
    """Whether an event can be lost so that something stands for it."""

    def forget(self) -> None:
        """Somebody else may have written: what was remembered of the tables may not hold."""
        ...

    def begun(self, conn: sqlite3.Connection) -> bool:
        """A transaction of the writer began; whether that changed anything in the tables."""
        ...

    def committing(self, conn: sqlite3.Connection) -> None:
        """The transaction is about to be committed: make durable what was put."""
        ...

    def committed(self) -> None:
        """The transaction is durable: what it replaced may go."""
        ...

    def rolled_back(self) -> None:
        """The transaction failed: take back what was put."""
        ...

    def current(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> SqliteLogEntry:
        """The log as it really is, before something is added to it."""
        ...

    def put(self, conn: sqlite3.Connection, entry: SqliteLogEntry, plan: Extension) -> list[bytes]:
        """What the `data` column is to hold of fresh events. `keep` follows, unless one of
        their ids turns out to be known."""
        ...

    def keep(self, conn: sqlite3.Connection) -> None:
        """Keep the data of the events that were put last."""
        ...

    def get(
        self, conn: sqlite3.Connection, log: int, key: Key, records: Sequence[Record]
    ) -> Iterable[Event]:
        """The events of some records of one log; `LogDamaged` at the first unreadable one."""
        ...

    def erasing(self, conn: sqlite3.Connection, parts: dict[int, list[int]], reason: str) -> None:
        """These numbers of these logs are about to be erased, all of them or none."""
        ...

    def replace(
        self, conn: sqlite3.Connection, log: int, data: Raw, kept: dict[int, KeptHash]
    ) -> None:
        """Put `data` in place of the data of some events, and with each what is kept of it."""
        ...

    def finish(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        """A restored log is complete."""
        ...

    def hide(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        """A log was deleted; what its forks share is still needed."""
        ...

    def trim(self, conn: sqlite3.Connection, log: int, kept: int | None) -> None:
        """The events of a deleted log after `kept` are gone; with None, all of it is."""
        ...

    def put_blob(self, scope: Scope, sha256: str, data: bytes) -> bytes:
        """Keep a blob; what the `data` column is to hold of it."""
        ...

    def get_blob(self, scope: Scope, sha256: str, column: bytes) -> bytes:
        """The bytes of a blob; empty if they are gone."""
        ...

    def hide_scope(self, conn: sqlite3.Connection, scope: Scope) -> None:
        """A session lost its last thread, and with it its blobs."""
        ...

    def claimed(
        self, conn: sqlite3.Connection, tenant: str, name: str, session: str | None
    ) -> None:
        """A name was claimed by a session, or given up."""
        ...


class TablePayloads:
    """Bytes behind a format byte: `j` is a CRC-32 and JSON, `p` says that it is in `payloads`,
    `b` a blob; `s` is never stored: it marks what a reader gets in place of a payload kept
    apart. The CRC is checked by every read; the event's SHA-256, which costs more, by `verify`.
    """

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
    """An event from its record and its data."""
    seq, id, kind, v, run, actor, cause, at, _, _ = record
    return Event(
        kind=kind, data=Raw(data), id=id, v=v, run=run, actor=actor, cause=cause, seq=seq, at=at
    )
