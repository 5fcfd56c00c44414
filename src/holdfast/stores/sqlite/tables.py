"""`SqliteTables`: the tables on an SQLite connection, for the operations that the SQLite and
PostgreSQL stores share."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from msgspec import Raw

from ...errors import LogDamaged
from ...log import catalog
from ...log.catalog import Row
from ...log.events import Event, Key, Scope
from .. import rules
from ..paging import PAGE_EVENTS
from ..rules import Extension
from ..sql.tables import LIVE, RESTORING, KeptHash, Lock, Segment
from ..verify import StoredEvent
from . import log as logs
from . import records, remove
from .payloads import COLUMNS, Record, SqliteLogEntry, event_of
from .transaction import Transaction


class SqliteTables(Transaction):
    """Implements `LogTables` for a transaction; its methods never wait."""

    @property
    def lossy(self) -> bool:
        return self.payloads.lossy

    async def now(self) -> int:
        return self.clock()

    # Logs

    async def lookup(self, key: Key) -> SqliteLogEntry | None:
        return logs.lookup(self.conn, key)

    async def locked(self, key: Key) -> SqliteLogEntry:
        return self.payloads.current(self.conn, logs.existing(self.conn, key))

    async def entry(self, id: int) -> SqliteLogEntry:
        return logs.entry_by_id(self.conn, id)

    async def state(self, id: int, lock: Lock = "") -> int | None:
        found = self.conn.execute("SELECT state FROM logs WHERE id = ?", (id,)).fetchone()
        return found and int(found[0])

    async def segments(self, entry: SqliteLogEntry) -> list[Segment]:
        return logs.segments(self.conn, entry)

    async def begin(
        self, row: Row, *, base: int | None, shared: int, state: int, until: int = 0
    ) -> SqliteLogEntry:
        return logs.begin(self.conn, row, base=base, shared=shared, state=state, until=until)

    async def save_row(self, id: int, old: Row | None, new: Row) -> None:
        if old is None:
            for table in ("terms", "pending"):
                self.conn.execute(f"DELETE FROM {table} WHERE log = ?", (id,))
        logs.save_row(self.conn, id, old, new)

    # Events

    async def known_ids(self, entry: SqliteLogEntry, ids: Sequence[str]) -> dict[str, int]:
        return logs.known_ids(self.conn, entry, ids)

    async def kept(self, log: int, seq: int) -> bytes | None:
        found = self.conn.execute(
            "SELECT link FROM events WHERE log = ? AND seq = ?", (log, seq)
        ).fetchone()
        return None if found is None else found[0]

    async def write(self, entry: SqliteLogEntry, plan: Extension) -> None:
        logs.write(self.conn, self.payloads, entry, plan)

    async def events(self, key: Key, log: int, after: int, upto: int) -> list[StoredEvent]:
        columns = f"{COLUMNS}, hash, link"
        found = logs.records_of(self.conn, log, columns, after, upto, PAGE_EVENTS)
        return [
            StoredEvent(event, record[9], record[10], problem)
            for record, (event, problem) in zip(found, self._read(key, log, found), strict=True)
        ]

    def _read(self, key: Key, log: int, found: Sequence[Record]) -> list[tuple[Event, str | None]]:
        """Return the events of some records. A damaged event is returned with the data null and a
        description of the damage."""
        try:
            return [(event, None) for event in self.payloads.get(self.conn, log, key, found)]
        except LogDamaged as error:
            if len(found) == 1:
                return [(event_of(found[0], b"null"), error.problem)]
            return [read for record in found for read in self._read(key, log, [record])]

    async def hashes(self, log: int, seqs: Sequence[int]) -> list[Record]:
        return [
            self.conn.execute(
                "SELECT seq, id, kind, v, hash, link FROM events WHERE log = ? AND seq = ?",
                (log, seq),
            ).fetchone()
            for seq in seqs
        ]

    async def replace(self, log: int, data: Raw, kept: dict[int, KeptHash]) -> None:
        self.payloads.replace(self.conn, log, data, kept)

    async def erasing(self, parts: dict[int, list[int]], reason: str) -> None:
        self.payloads.erasing(self.conn, parts, reason)

    # Restores

    async def restoring(self, log: str) -> SqliteLogEntry:
        found = self.conn.execute(
            "SELECT id FROM logs WHERE log = ? AND state = ?", (log, RESTORING)
        ).fetchone()
        if found is None:
            raise rules.restore_discarded()
        return logs.entry_by_id(self.conn, found[0])

    async def write_restored(self, entry: SqliteLogEntry, plan: Extension, until: int) -> None:
        logs.write(self.conn, self.payloads, entry, plan, listed=False)
        self.conn.execute("UPDATE logs SET until = ? WHERE id = ?", (until, entry.id))

    async def publish(self, entry: SqliteLogEntry, key: Key) -> None:
        self.conn.execute(
            "UPDATE logs SET state = ?, tenant = ?, session = ?, thread = ?, until = 0"
            " WHERE id = ?",
            (LIVE, key.tenant, key.session, key.thread, entry.id),
        )
        self.payloads.finish(self.conn, entry)
        logs.save_row(self.conn, entry.id, None, entry.row)

    # Snapshots, lists and claims

    async def drop_snapshots(self, log: int, *, forks: bool) -> int:
        return remove.drop_snapshots(self.conn, log, forks=forks)

    async def has_terms(self, id: int, row: Row) -> bool:
        found = self.conn.execute("SELECT map, key, term FROM terms WHERE log = ?", (id,))
        return set(found) == catalog.row_terms(row)

    async def pending_ids(self, id: int) -> set[str]:
        found = self.conn.execute("SELECT id FROM pending WHERE log = ?", (id,))
        return {item for (item,) in found}

    async def claimed(self, tenant: str, name: str) -> Scope | None:
        return records.claimed(self.conn, tenant, name)


def live_log(conn: sqlite3.Connection, log: str) -> int | None:
    """Return the id of a log, given its incarnation. Returns None if the log was deleted."""
    found = conn.execute("SELECT id FROM logs WHERE log = ? AND state = ?", (log, LIVE)).fetchone()
    return found and int(found[0])
