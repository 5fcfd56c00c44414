"""`PayloadStorage`, which stores the data of events and blobs in the SQLite tables.

The file store uses a subclass: its tables are only an index, and the data is in files of JSON
lines. Every method runs inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from msgspec import Raw

from ...log.catalog import Row
from ...log.events import Event, Key, Scope
from .. import rules
from ..frames import FRAME, head_of, packed, spoiled, unpacked
from ..rules import APART, Extension, LeaseState
from ..sql.tables import KeptHash

Record = tuple[Any, ...]  # the columns `COLUMNS` of an event, perhaps followed by others

COLUMNS = "seq, id, kind, v, run, actor, cause, at, data"


class SqliteLogEntry(NamedTuple):
    """A log as stored in the `logs` table."""

    id: int
    base: int | None
    shared: int
    lease: LeaseState
    row: Row
    drafts: bool = True
    """Whether the log may have drafts."""


Recent = dict[Key, SqliteLogEntry]  # the logs that were written last, cached for the next write


class PayloadStorage:
    """Stores the data of events and blobs in the tables. The file store overrides most methods.

    The first byte is the format: `j` is followed by a CRC-32 and JSON, `p` means that the data is
    in `payloads`, `b` is followed by a blob. `s` is never stored: it marks the stub that a reader
    gets for a separately stored payload. Every read checks the CRC; `verify` also checks the
    event's SHA-256, which is more expensive.
    """

    columns = COLUMNS
    """The columns that the records passed to `get` must have."""
    lossy = False
    """Whether this store replaces lost events with placeholders."""

    # Transactions

    def forget(self) -> None:
        """Drop cached values, because another process may have changed the tables."""

    def begun(self, conn: sqlite3.Connection) -> bool:
        """Prepare a transaction of the writer. Returns whether this has changed the tables."""
        return False

    def committing(self, conn: sqlite3.Connection) -> None:
        """Make the writes durable; called just before the commit."""

    def committed(self) -> None:
        """Remove data that was replaced, if necessary; called after the commit."""

    def rolled_back(self) -> None:
        """Undo the writes; called when the transaction failed."""

    # Events

    def current(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> SqliteLogEntry:
        """Update the log if it changed outside the database (in the file store), and return it;
        called before an append."""
        return entry

    def put(self, conn: sqlite3.Connection, entry: SqliteLogEntry, plan: Extension) -> list[bytes]:
        """Return the content of the `data` column for new events. `keep` is called next, unless one
        of the ids is already in the log."""
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
        """Store the data of the events of the last call of `put`."""

    def get(
        self, conn: sqlite3.Connection, log: int, key: Key, records: Sequence[Record]
    ) -> Iterable[Event]:
        """Yield the events of some records of one log. Raises `LogDamaged` at the first unreadable
        event."""
        for record in records:
            yield sound_event(record) or self._get_other(conn, log, key, record)

    def _get_other(self, conn: sqlite3.Connection, log: int, key: Key, record: Record) -> Event:
        """Return an event whose data is stored in `payloads`, or its stub. Raises `LogDamaged` if
        the data is unreadable."""
        column: bytes = record[8]
        if column[:1] == b"s":
            return event_of(record, column[1:])
        if column[:1] == b"p":
            (column,) = conn.execute(
                "SELECT data FROM payloads WHERE log = ? AND seq = ?", (log, record[0])
            ).fetchone() or (b"",)
        data = unpacked(column)
        if data is None:
            raise spoiled(key, event_of(record, column[FRAME:]))
        return event_of(record, data)

    def erasing(self, conn: sqlite3.Connection, parts: dict[int, list[int]], reason: str) -> None:
        """Prepare the erasure of events, given as numbers by log, so that a crash cannot leave only
        some of them erased."""

    def replace(
        self, conn: sqlite3.Connection, log: int, data: Raw, kept: dict[int, KeptHash]
    ) -> None:
        """Replace the data of some events, together with the hash and link stored for each."""
        column = packed(data)
        for seq, (hash, link) in kept.items():
            conn.execute(
                "UPDATE events SET data = ?, hash = ?, link = ? WHERE log = ? AND seq = ?",
                (column, hash, link, log, seq),
            )
            conn.execute("DELETE FROM payloads WHERE log = ? AND seq = ?", (log, seq))

    # Creating and removing logs

    def finish(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        """Complete a restored log, after all of its events are written."""

    def hide(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        """Hide the data of a deleted log. Events that forks share must be kept."""

    def trim(self, conn: sqlite3.Connection, log: int, kept: int | None) -> None:
        """Remove the data of a deleted log's events after number `kept`; with `kept` None, of the
        whole log."""
        conn.execute("DELETE FROM payloads WHERE log = ? AND seq > ?", (log, kept or 0))

    # Blobs and claims

    def put_blob(self, scope: Scope, sha256: str, data: bytes) -> bytes:
        """Store a blob. Returns the content of its `data` column."""
        return b"b" + data

    def get_blob(self, scope: Scope, sha256: str, column: bytes) -> bytes:
        """Return the bytes of a blob; empty if they are missing."""
        return column[1:]

    def hide_scope(self, conn: sqlite3.Connection, scope: Scope) -> None:
        """Hide the blobs of a session whose last thread was deleted, before they are removed."""

    def claimed(
        self, conn: sqlite3.Connection, tenant: str, name: str, session: str | None
    ) -> None:
        """Record that a session has claimed or released a name."""


def event_of(record: Record, data: bytes) -> Event:
    """Build an event from its record and its data."""
    seq, id, kind, v, run, actor, cause, at, _ = record[:9]
    return Event(
        kind=kind, data=Raw(data), id=id, v=v, run=run, actor=actor, cause=cause, seq=seq, at=at
    )


def sound_event(record: Record) -> Event | None:
    """Build an event from its record. Returns None if the data is stored elsewhere or damaged.
    Combines `unpacked` and `event_of`, for speed."""
    seq, id, kind, v, run, actor, cause, at, column = record[:9]
    data = column[FRAME:]
    if not data or head_of(column) != (b"j", crc32(data)):
        return None
    return Event(
        kind=kind, data=Raw(data), id=id, v=v, run=run, actor=actor, cause=cause, seq=seq, at=at
    )
