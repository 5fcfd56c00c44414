"""`Index`, which keeps the SQLite index of a file store consistent with the files.

The files are authoritative. If events of the files are missing in the index (a process crashed
between the two writes), they are added. If the index has events that the files do not have (the
files were damaged), they are removed from the index, and the damage is recorded. If the index is
missing, it is rebuilt from all files.
"""

from __future__ import annotations

import logging
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from ...errors import InvalidValue
from ...log import catalog
from ...log.catalog import Project, Row, RowChange
from ...log.catalog.encrypted_preview import LOST
from ...log.codec import fingerprint
from ...log.events import Event, Key, NewEvent
from .. import rules
from ..hash_chain import ending
from ..port import Damage
from ..sqlite import log as logs
from ..sqlite import remove
from ..sqlite.payloads import SqliteLogEntry
from .folder import StoreFolder
from .lines import Placed, Scanned, parse_line, scan, unfinished

logger = logging.getLogger("holdfast.file")

TABLES = "CREATE TABLE IF NOT EXISTS files (log INTEGER PRIMARY KEY, size INTEGER NOT NULL)"
JOURNAL = 0  # the id of the journal in the table `files`
UNREADABLE = b"x"

_place = struct.Struct(">cQQ")


class JournalEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change that is recorded in `journal.jsonl`, because it is not part of a log file: a claim,
    a delete, an erasure or a damage. A line of the journal is a list of entries. A claim without a
    session was released. `deleted` is a deleted log, or the new name of a renamed folder of deleted
    blobs. `erased` maps logs to the numbers of erased events."""

    claim: tuple[str, str] | None = None
    session: str | None = None
    deleted: str | None = None
    erased: dict[str, list[int]] = {}
    reason: str = ""
    damage: Damage | None = None
    log: str | None = None


_said = msgspec.json.Decoder(list[JournalEntry]).decode


def place(offset: int, length: int) -> bytes:
    """Encode the position of a line for the column `events.data`."""
    return _place.pack(b"f", offset, length)


def unpack(column: bytes) -> tuple[int, int]:
    _, offset, length = _place.unpack(column)
    return offset, length


class Index:
    """Keeps the tables of the index consistent with the files of one folder."""

    def __init__(self, folder: StoreFolder, project: Project) -> None:
        self._folder = folder
        self._project = project
        self._saying: list[JournalEntry] = []
        self._journal: int | None = None  # its size according to the index, if known

    def forget(self) -> None:
        """Drop cached values, because another process may have changed the tables."""
        self._journal = None

    # Sizes

    def grown(self, conn: sqlite3.Connection, log: int, size: int) -> None:
        if log == JOURNAL:
            self._journal = size
        conn.execute("INSERT OR REPLACE INTO files (log, size) VALUES (?, ?)", (log, size))

    def gone(self, conn: sqlite3.Connection, log: int) -> None:
        conn.execute("DELETE FROM files WHERE log = ?", (log,))

    def _size(self, conn: sqlite3.Connection, log: int) -> int:
        found = conn.execute("SELECT size FROM files WHERE log = ?", (log,)).fetchone()
        return found[0] if found else 0

    def lines(self, conn: sqlite3.Connection, log: int, path: Path) -> dict[int, bytes]:
        """Return the lines of a log's file as bytes, by event number, including damaged lines."""
        text = path.read_bytes()
        start = text.find(b"\n") + 1
        (shared,) = conn.execute("SELECT shared FROM logs WHERE id = ?", (log,)).fetchone()
        scanned = scan(text[start:], offset=start, seq=shared)
        found = {p.seq: text[p.offset : p.offset + p.length] for p in scanned.lines}
        # A line at the indexed position is intact, even if the line end before it was damaged.
        for seq, column in conn.execute("SELECT seq, data FROM events WHERE log = ?", (log,)):
            if column[:1] == b"f":
                offset, length = unpack(column)
                line = parse_line(text[offset : offset + length])
                if line is not None and line.seq == seq:
                    found[seq] = text[offset : offset + length]
        return found

    # The journal

    def say(self, said: JournalEntry) -> None:
        """Queue an entry for the journal. The entry is written at the end of the transaction."""
        self._saying.append(said)

    def write_down(self, conn: sqlite3.Connection) -> None:
        """Write the journal entries of this transaction as one line, so that after a crash either
        all or none of them are present."""
        if self._saying:
            line = msgspec.json.encode(self._saying) + b"\n"
            start = self._folder.append(self._folder.journal, line)
            self.grown(conn, JOURNAL, start + len(line))
            self._saying.clear()

    def unsay(self) -> None:
        """Drop the journal entries of a failed transaction."""
        self._saying.clear()

    def catch_up_journal(self, conn: sqlite3.Connection) -> list[JournalEntry]:
        """Apply journal entries that the index does not have yet, such as those of a crashed
        process, and truncate an unfinished line. Returns the entries; the caller must complete
        their deletes and erasures."""
        size = self._folder.size(self._folder.journal)
        if size == self._journal:
            return []
        known = self._journal = self._size(conn, JOURNAL)
        if size == known:
            return []
        text = self._folder.journal.read_bytes()
        end = text.rfind(b"\n") + 1
        if end < size:
            self._folder.cut(self._folder.journal, end)
        # If the journal is shorter than the index says, it was rewritten: read all of it.
        said = heard(text[known if known <= end else 0 : end])
        for one in said:
            self._take_in(conn, one)
        self.grown(conn, JOURNAL, end)
        return said

    def apply_whole_journal(self, conn: sqlite3.Connection) -> list[JournalEntry]:
        """Apply all entries of the journal to the index, and return them."""
        conn.execute("DELETE FROM claims")
        said = self._heard()
        for one in said:
            self._take_in(conn, one)
        return said

    def write_anew(self, conn: sqlite3.Connection, said: list[JournalEntry]) -> None:
        """Replace the journal with a new one that contains these entries."""
        text = b"".join(msgspec.json.encode([one]) + b"\n" for one in said)
        self._folder.replace(self._folder.journal, text)
        self.grown(conn, JOURNAL, len(text))

    def deleted(self) -> set[str]:
        """Return the names of deleted logs and of renamed folders of deleted blobs, according to
        the journal and the current transaction."""
        said = [*self._heard(), *self._saying]
        return {one.deleted for one in said if one.deleted is not None}

    def _heard(self) -> list[JournalEntry]:
        journal = self._folder.journal
        return heard(journal.read_bytes()) if journal.exists() else []

    def _take_in(self, conn: sqlite3.Connection, said: JournalEntry) -> None:
        if said.claim is not None and said.session is not None:
            conn.execute(
                "INSERT OR REPLACE INTO claims (tenant, name, session) VALUES (?, ?, ?)",
                (*said.claim, said.session),
            )
        elif said.claim is not None:
            conn.execute("DELETE FROM claims WHERE tenant = ? AND name = ?", said.claim)

    def damages(self) -> list[Damage]:
        """Return the damage that was recorded in the journal since the last purge."""
        return [said.damage for said in self._heard() if said.damage]

    # Catching up

    def catch_up(
        self, conn: sqlite3.Connection, entry: SqliteLogEntry, *, doubt: bool = False
    ) -> SqliteLogEntry:
        """Update the index of a log from its file, and return the log. With `doubt`, the file is
        checked even if its size equals the size in the index, because the file may have been
        rewritten although its size is the same."""
        path = self._folder.paths.log(entry.row.log)
        size, known = self._folder.size(path), self._size(conn, entry.id)
        if size == known and not (doubt and size and self._has_moved(conn, entry, path)):
            return entry
        if size > known > 0 and self._ends_at(conn, entry, path, known):
            text = _read_from(path, known)
            self._take_lines(
                conn,
                entry,
                path,
                text,
                known,
                listed=entry.row,
                salvage=False,
                known=entry.row.head,
            )
        else:
            self._index_again(conn, entry, path)
        return logs.entry_by_id(conn, entry.id)

    def _ends_at(
        self, conn: sqlite3.Connection, entry: SqliteLogEntry, path: Path, offset: int
    ) -> bool:
        """Return whether the log's last line still ends at `offset`, as recorded in the index. If
        not, a process rewrote the file and crashed before it updated the index."""
        found = conn.execute(
            "SELECT id, data FROM events WHERE log = ? AND seq = ?", (entry.id, entry.row.head)
        ).fetchone()
        if found is None or found[1][:1] != b"f":
            return False
        start, length = unpack(found[1])
        line = parse_line(_read_from(path, start, length))
        return line is not None and line.id == found[0] and start + length == offset

    def _has_moved(self, conn: sqlite3.Connection, entry: SqliteLogEntry, path: Path) -> bool:
        """Return whether the last indexed line is at another position of the file than the index
        says. If the line is not in the file at all, it is damaged; a read reports this."""
        found = conn.execute(
            "SELECT seq, id, data FROM events WHERE log = ? AND substr(data, 1, 1) = ?"
            " ORDER BY seq DESC LIMIT 1",
            (entry.id, b"f"),
        ).fetchone()
        if found is None:
            return False
        last = found[:2]
        line = parse_line(_read_from(path, *unpack(found[2])))
        if line is not None and (line.seq, line.id) == last:
            return False
        text = path.read_bytes()
        start = text.find(b"\n") + 1
        placed = scan(text[start:], offset=start, seq=entry.shared).lines
        return any(p.line is not None and (p.seq, p.line.id) == last for p in placed)

    def _index_again(self, conn: sqlite3.Connection, entry: SqliteLogEntry, path: Path) -> None:
        """Remove the events of a log from the index, and index its file from the start."""
        for table in ("events", "pending", "terms"):
            conn.execute(f"DELETE FROM {table} WHERE log = ?", (entry.id,))
        remove.drop_snapshots(conn, entry.id)
        text = path.read_bytes() if path.exists() else b""
        start = text.find(b"\n") + 1
        row = rules.empty_row(entry.row, entry.shared)
        before = entry._replace(row=row)
        self._take_lines(conn, before, path, text[start:], start, listed=None, known=entry.row.head)
        after = logs.entry_by_id(conn, entry.id).row
        if after.head < entry.row.head and entry.row.tenant:
            self._note(
                conn,
                entry,
                Damage(
                    problem="torn",
                    detail=f"the file ends at event {after.head}, "
                    f"but the index ends at event {entry.row.head}",
                    key=entry.row.key,
                    seq=after.head + 1,
                    repaired=True,
                ),
            )

    def _take_lines(
        self,
        conn: sqlite3.Connection,
        entry: SqliteLogEntry,
        path: Path,
        text: bytes,
        offset: int,
        *,
        listed: Row | None,
        salvage: bool = True,
        known: int | None,
    ) -> None:
        """Index `text`, the part of a file that begins at `offset`, and truncate an unfinished
        line. Without `salvage`, truncate the whole unfinished transaction. `listed` is the row that
        the index has so far. Leases are read from the lines after event `known`, or not at all if
        `known` is None."""
        scanned = scan(text, offset=offset, seq=entry.row.head)
        if not salvage:
            scanned = unfinished(scanned, offset, entry.row.head)
        if scanned.torn:
            self._folder.cut(path, scanned.end)
            self._note(
                conn,
                entry,
                Damage(
                    problem="torn",
                    detail=f"{scanned.torn} bytes of an unfinished line were removed",
                    key=entry.row.key,
                    seq=(scanned.lines[-1].seq if scanned.lines else entry.row.head) + 1,
                    repaired=True,
                ),
            )
        row = entry.row
        lines = scanned.lines + self._shared_but_gone(conn, entry, scanned)
        if lines:
            row = self._insert(conn, entry, lines)
        if row.tenant:
            logs.save_row(conn, entry.id, listed, row)
        else:
            remove.save_bare(conn, entry.id, row)
        if known is not None and row.tenant:
            _take_lease(conn, entry, [placed for placed in lines if placed.seq > known])
        self.grown(conn, entry.id, scanned.end)

    def _shared_but_gone(
        self, conn: sqlite3.Connection, entry: SqliteLogEntry, scanned: Scanned
    ) -> list[Placed]:
        """Return placeholders for events that forks share but that are missing in the file. Their
        numbers are never assigned again."""
        last = scanned.lines[-1].seq if scanned.lines else entry.row.head
        (upto,) = conn.execute(
            "SELECT max(shared) FROM logs WHERE base = ?", (entry.id,)
        ).fetchone()
        return [Placed(seq, None, scanned.end, 0) for seq in range(last + 1, (upto or 0) + 1)]

    def _insert(
        self, conn: sqlite3.Connection, entry: SqliteLogEntry, lines: Iterable[Placed]
    ) -> Row:
        events: list[Event] = []
        changes: list[RowChange] = []
        records = []
        apart = 0  # bytes stored outside the lines
        taken: set[str] = set()
        for placed in self._without_doubles(lines):
            line = placed.line
            if line is None or line.id in taken:
                event, link = lost(placed.seq), None
                column, hash = UNREADABLE, fingerprint(event)
                change: RowChange = ()
            else:
                event, change, hash = line.event(), line.row, bytes.fromhex(line.sha256)
                link = line.kept
                column = place(placed.offset, placed.length)
                if line.apart:
                    column = b"p" + bytes(line.data)
                    apart += event.json()["apart"]["size"] - len(event.data)
            taken.add(event.id)
            events.append(event)
            changes.append(change)
            records.append(logs.record_of(entry.id, event, hash, column, link))
        conn.executemany(logs.INSERT, records)
        logs.drop_drafts(conn, entry.id, changes)
        row = entry.row
        if row.head == entry.shared:
            row = msgspec.structs.replace(row, created=events[0].at, active=events[0].at // 1000)
        row = self._applied(row, events, changes)
        return msgspec.structs.replace(row, bytes=row.bytes + apart, link=ending(link))

    def _applied(self, row: Row, events: list[Event], changes: list[RowChange]) -> Row:
        try:
            return catalog.apply(row, events, changes)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, InvalidValue):
            # The event's hash does not cover the row change, so damage in it is found only here.
            return catalog.apply(row, events, [self._project(event) for event in events])

    def _without_doubles(self, lines: Iterable[Placed]) -> Iterable[Placed]:
        """Yield the lines. If several lines have the same id, those that do not match their hash
        are marked as unreadable."""
        lines = list(lines)
        times = Counter(placed.line.id for placed in lines if placed.line is not None)
        for placed in lines:
            line = placed.line
            if line is not None and times[line.id] > 1 and not line.apart:
                sound = fingerprint(line.event()).hex() == line.sha256
                yield placed if sound else placed._replace(line=None)
            else:
                yield placed

    def _note(self, conn: sqlite3.Connection, entry: SqliteLogEntry, damage: Damage) -> None:
        logger.warning(
            "log %s: %s (%s) at event %s", entry.row.log, damage.problem, damage.detail, damage.seq
        )
        self.say(JournalEntry(damage=damage, log=entry.row.log))

    def check_line(self, conn: sqlite3.Connection, key: Key) -> None:
        """Update the index from the file of a log, and from the files of the logs that it was
        forked from."""
        if (entry := logs.lookup(conn, key)) is not None:
            for id, _, _ in logs.segments(conn, entry):
                self.catch_up(conn, logs.entry_by_id(conn, id))

    def take_file(
        self, conn: sqlite3.Connection, entry: SqliteLogEntry, *, salvage: bool, leases: bool
    ) -> None:
        """Index all lines of a log that was just added to the index. With `leases`, also restore
        its lease."""
        path = self._folder.paths.log(entry.row.log)
        text = path.read_bytes()
        start = text.find(b"\n") + 1
        known = entry.row.head if leases else None
        self._take_lines(
            conn, entry, path, text[start:], start, listed=None, salvage=salvage, known=known
        )


def _take_lease(conn: sqlite3.Connection, entry: SqliteLogEntry, lines: Iterable[Placed]) -> None:
    """Store the lease that the last of these lines with a lease contains, unless the index has a
    newer lease."""
    found = [placed.line.lease for placed in lines if placed.line and placed.line.lease]
    if found and found[-1].token >= entry.lease.token:
        logs.save_lease(conn, entry.id, found[-1])


def lost(seq: int) -> Event:
    """Return the placeholder event for an event that cannot be read at all."""
    event = NewEvent.of(LOST, id=f"damaged:{seq}")
    return event.numbered(seq, 0)


def heard(text: bytes) -> list[JournalEntry]:
    """Parse lines of the journal. Returns the entries of all readable lines."""
    found: list[JournalEntry] = []
    for line in text.splitlines():
        try:
            found += _said(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            logger.error("journal.jsonl has an unreadable line, which is skipped")
    return found


def _read_from(path: Path, offset: int, length: int = -1) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)
