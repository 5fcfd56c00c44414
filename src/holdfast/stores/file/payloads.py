"""`FilePayloads`, the payload storage of a file store: events as JSON lines, large data and blobs
as files.

The tables of the SQLite store serve as an index that can be rebuilt. The column `events.data`
contains the position of a line (`f`, offset, length), or a byte that says that the data is in a
separate file (`p`) or unreadable (`x`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Raw

from ...environment import wall_clock
from ...errors import LogDamaged
from ...log.catalog import Project
from ...log.codec import erased, fingerprint
from ...log.events import Event, Key, Scope, new_id
from .. import rules
from ..frames import spoiled
from ..rules import APART, Extension
from ..sql.history import blank
from ..sql.tables import LIVE, RESTORING, KeptHash, completed
from ..sqlite import log as logs
from ..sqlite import remove
from ..sqlite.payloads import COLUMNS, PayloadStorage, Record, SqliteLogEntry, event_of
from ..sqlite.tables import SqliteTables
from .folder import StoreFolder
from .index import UNREADABLE, Index, JournalEntry, place, unpack
from .lines import FORMAT, Header, event_line, header_line, parse_line


@dataclass
class Staged:
    """The lines and files that an append is about to write."""

    log: int
    path: Path
    size: int
    text: bytearray = field(default_factory=bytearray)
    apart: dict[Path, bytes] = field(default_factory=dict)


class FilePayloads(PayloadStorage):
    """Stores the data of events and blobs in the files of a folder. `Index` keeps the tables
    consistent with these files."""

    columns = f"{COLUMNS}, hash"
    lossy = True

    def __init__(self, folder: StoreFolder, project: Project, index: Index) -> None:
        self._folder = folder
        self._project = project
        self._index = index
        self._recent: dict[int, tuple[Path, int]] = {}  # log id -> file, size of the file
        self._first: dict[int, int] = {}  # log id -> first event of this transaction
        self._staged: Staged | None = None

    # Transactions

    def begun(self, conn: sqlite3.Connection) -> bool:
        said = self._index.catch_up_journal(conn)
        for one in said:
            key = live_key(conn, one.deleted) if one.deleted else None
            if key is not None:
                remove.hide(conn, self, key)
            self.erase_again(conn, one)
        return bool(said)

    def committing(self, conn: sqlite3.Connection) -> None:
        self._index.write_down(conn)
        self._folder.make_durable()

    def committed(self) -> None:
        self._first.clear()
        self._folder.done()

    def rolled_back(self) -> None:
        self._first.clear()
        self._index.unsay()
        self._folder.roll_back()

    def forget(self) -> None:
        self._recent.clear()
        self._index.forget()

    # Events

    def current(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> SqliteLogEntry:
        path, size = self._recent.get(entry.id, (None, 0))
        if path is None or self._folder.size(path) != size:
            entry = self._index.catch_up(conn, entry)
            path = self._folder.paths.log(entry.row.log)
            self._recent[entry.id] = path, self._folder.size(path)
        return entry

    def put(self, conn: sqlite3.Connection, entry: SqliteLogEntry, plan: Extension) -> list[bytes]:
        if entry.id not in self._recent:
            path = self._path(conn, entry.id)
            self._recent[entry.id] = path, self._folder.size(path)
        path, size = self._recent[entry.id]
        staged = self._staged = Staged(entry.id, path, size)
        if size == 0:
            staged.text += header_line(self._header(conn, entry))
        columns = []
        first = self._first.setdefault(entry.id, plan.fresh[0].seq)
        last = plan.fresh[-1].seq
        for event, change, hash, link in zip(
            plan.fresh, plan.changes, plan.hashes, plan.links, strict=True
        ):
            stub = None
            if len(event.data) > APART:
                staged.apart[self._folder.paths.apart(entry.row.log, event.seq)] = bytes(event.data)
                stub = Raw(rules.apart(event))
            lease = plan.lease_state if event.seq == last else None
            line = event_line(
                event, hash, link, change, stub=stub, first=first, last=last, lease=lease
            )
            at = size + len(staged.text)
            columns.append(place(at, len(line)) if stub is None else b"p" + bytes(stub))
            staged.text += line
        return columns

    def keep(self, conn: sqlite3.Connection) -> None:
        staged = self._staged
        assert staged is not None
        for path, data in staged.apart.items():
            self._folder.write(path, data)
        if staged.apart:
            self._folder.make_names_durable()
        if staged.size:
            self._folder.append(staged.path, bytes(staged.text))
        else:
            # The file gets its name only when it is complete. An incomplete first line is therefore
            # always damage, not the result of a power loss during the creation of the log.
            self._folder.write(staged.path, bytes(staged.text))
        size = staged.size + len(staged.text)
        self._index.grown(conn, staged.log, size)
        self._recent[staged.log] = staged.path, size

    def _header(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> Header:
        row = entry.row
        base = conn.execute("SELECT log FROM logs WHERE id = ?", (entry.base,)).fetchone()
        return Header(
            holdfast=FORMAT,
            log=row.log,
            tenant=row.tenant,
            session=row.session,
            thread=row.thread,
            base=base and base[0],
            shared=entry.shared,
        )

    def put_header(self, conn: sqlite3.Connection, key: Key) -> None:
        """Rewrite the first line of a log's file with the values in the index."""
        entry = logs.existing(conn, key)
        path = self._path(conn, entry.id)
        lines = self._index.lines(conn, entry.id, path)
        header = header_line(self._header(conn, entry))
        self._rewrite(conn, entry.id, path, header, lines)

    def _path(self, conn: sqlite3.Connection, id: int) -> Path:
        log, state = conn.execute("SELECT log, state FROM logs WHERE id = ?", (id,)).fetchone()
        return self._folder.paths.log(log, restoring=state == RESTORING)

    def get(
        self, conn: sqlite3.Connection, log: int, key: Key, records: Sequence[Record]
    ) -> Iterable[Event]:
        path = self._path(conn, log)
        lines = _lines(path, [record[8] for record in records])
        (name,) = conn.execute("SELECT log FROM logs WHERE id = ?", (log,)).fetchone()
        for record, text in zip(records, lines, strict=True):
            column = record[8]
            if column[:1] == b"s":
                yield event_of(record, column[1:])
                continue
            data = self._get_apart(name, record[0]) if column[:1] == b"p" else _data(text, record)
            event = event_of(record, data)
            if fingerprint(event) != record[9]:
                raise spoiled(key, event)
            yield event

    def _get_apart(self, log: str, seq: int) -> bytes:
        try:
            return self._folder.paths.apart(log, seq).read_bytes()
        except FileNotFoundError:
            return b""

    def erasing(self, conn: sqlite3.Connection, parts: dict[int, list[int]], reason: str) -> None:
        # Files are replaced one by one, so the erasure is recorded in the journal first.
        names = {_name(conn, log): seqs for log, seqs in parts.items()}
        self._index.say(JournalEntry(erased=names, reason=reason))
        self._index.write_down(conn)
        self._folder.make_durable()

    def erase_again(self, conn: sqlite3.Connection, said: JournalEntry) -> None:
        """Complete the erasure of a journal entry, if it was interrupted."""
        for name, seqs in said.erased.items():
            found = conn.execute("SELECT id FROM logs WHERE log = ?", (name,)).fetchone()
            if found is None or not self._folder.paths.log(name).exists():
                continue
            entry = self._index.catch_up(conn, logs.entry_by_id(conn, found[0]))
            data = erased(said.reason)
            left = [seq for seq in seqs if not self._holds(conn, entry, seq, data)]
            if left:
                tables = SqliteTables(conn, self, {}, self._project, wall_clock)
                completed(blank)(tables, entry.id, left, said.reason)
                remove.drop_snapshots(conn, entry.id)

    def _holds(self, conn: sqlite3.Connection, entry: SqliteLogEntry, seq: int, data: Raw) -> bool:
        """Return whether event `seq` already has this data, or does not exist."""
        records = logs.records_of(conn, entry.id, self.columns, seq - 1, seq, 1)
        try:
            return all(e.data == data for e in self.get(conn, entry.id, entry.row.key, records))
        except LogDamaged:
            return False

    def replace(
        self, conn: sqlite3.Connection, log: int, data: Raw, kept: dict[int, KeptHash]
    ) -> None:
        path = self._path(conn, log)
        (name,) = conn.execute("SELECT log FROM logs WHERE id = ?", (log,)).fetchone()
        lines = self._index.lines(conn, log, path)
        for seq, (hash, link) in kept.items():
            id, kind, v, run, actor, cause, at = conn.execute(
                "SELECT id, kind, v, run, actor, cause, at FROM events WHERE log = ? AND seq = ?",
                (log, seq),
            ).fetchone()
            event = event_of((seq, id, kind, v, run, actor, cause, at, b""), bytes(data))
            lines[seq] = event_line(event, hash, link, self._project(event))
            self._folder.remove(self._folder.paths.apart(name, seq))
        header = path.read_bytes().partition(b"\n")[0] + b"\n"
        self._rewrite(conn, log, path, header, lines)
        conn.executemany(
            "UPDATE events SET hash = ?, link = ? WHERE log = ? AND seq = ?",
            [(hash, link, log, seq) for seq, (hash, link) in kept.items()],
        )

    def _rewrite(
        self, conn: sqlite3.Connection, log: int, path: Path, header: bytes, lines: dict[int, bytes]
    ) -> None:
        """Rewrite a log's file, and update the positions of its lines in the index."""
        at = len(header)
        places = []
        for seq, text in sorted(lines.items()):
            line = parse_line(text)
            if line is None:
                places.append((UNREADABLE, log, seq))
            elif not line.apart:
                places.append((place(at, len(text)), log, seq))
            at += len(text)
        self._folder.replace(path, header + b"".join(text for _, text in sorted(lines.items())))
        conn.executemany("UPDATE events SET data = ? WHERE log = ? AND seq = ?", places)
        self._index.grown(conn, log, at)

    # Creating and removing logs

    def finish(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        log = entry.row.log
        self._folder.rename(
            self._folder.paths.log(log, restoring=True), self._folder.paths.log(log)
        )

    def hide(self, conn: sqlite3.Connection, entry: SqliteLogEntry) -> None:
        self._index.say(JournalEntry(deleted=entry.row.log))

    def trim(self, conn: sqlite3.Connection, log: int, kept: int | None) -> None:
        name, shared, base = conn.execute(
            "SELECT log, shared, base FROM logs WHERE id = ?", (log,)
        ).fetchone()
        if kept is None:
            self._folder.remove(self._folder.paths.log(name))
            self._folder.remove(self._folder.paths.log(name, restoring=True))
            self._folder.remove(self._folder.paths.apart(name, 0).parent)
            self._index.gone(conn, log)
            return
        path = self._path(conn, log)
        lines = self._index.lines(conn, log, path)
        for seq in [seq for seq in lines if seq > kept]:
            del lines[seq]
            self._folder.remove(self._folder.paths.apart(name, seq))
        of = conn.execute("SELECT log FROM logs WHERE id = ?", (base,)).fetchone()
        header = Header(holdfast=FORMAT, log=name, base=of and of[0], shared=shared)
        self._rewrite(conn, log, path, header_line(header), lines)

    # Blobs and claims

    def put_blob(self, scope: Scope, sha256: str, data: bytes) -> bytes:
        folder = self._folder.paths.blobs(scope)
        owner = folder / "owner.json"
        if not owner.exists():
            self._folder.write(owner, msgspec.json.encode(scope))
        self._folder.write(folder / sha256, data)
        return b"f"

    def get_blob(self, scope: Scope, sha256: str, column: bytes) -> bytes:
        try:
            return (self._folder.paths.blobs(scope) / sha256).read_bytes()
        except FileNotFoundError:
            return b""

    def hide_scope(self, conn: sqlite3.Connection, scope: Scope) -> None:
        name = new_id()
        if self._folder.set_aside(self._folder.paths.blobs(scope), name):
            self._index.say(JournalEntry(deleted=name))

    def claimed(
        self, conn: sqlite3.Connection, tenant: str, name: str, session: str | None
    ) -> None:
        self._index.say(JournalEntry(claim=(tenant, name), session=session))


def _name(conn: sqlite3.Connection, log: int) -> str:
    (name,) = conn.execute("SELECT log FROM logs WHERE id = ?", (log,)).fetchone()
    return str(name)


def live_key(conn: sqlite3.Connection, log: str) -> Key | None:
    """Return the key of a log; None if the log was deleted."""
    found = conn.execute(
        "SELECT tenant, session, thread FROM logs WHERE log = ? AND state = ?", (log, LIVE)
    ).fetchone()
    return found and Key(*found)


def _data(text: bytes, record: Record) -> bytes:
    """Return the data of an event from its line. Returns empty bytes if the line is not the one
    that the index describes."""
    line = parse_line(text)
    if line is None or line.sha256 != record[9].hex():
        return b""
    envelope = (line.seq, line.id, line.kind, line.v, line.run, line.actor, line.cause, line.at)
    same = envelope == record[:8]
    return bytes(line.data) if same else b""


def _lines(path: Path, columns: Sequence[bytes]) -> list[bytes]:
    """Read the lines at these positions of a file, in one read. A missing line is returned as empty
    bytes."""
    places = [unpack(column) if column[:1] == b"f" else None for column in columns]
    wanted = [place for place in places if place is not None]
    if not wanted:
        return [b""] * len(columns)
    start = min(offset for offset, _ in wanted)
    length = max(offset + size for offset, size in wanted) - start
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return [b""] * len(columns)
    try:
        text = os.pread(file, length, start)
    finally:
        os.close(file)
    return [
        b"" if place is None else text[place[0] - start : place[0] - start + place[1]]
        for place in places
    ]
