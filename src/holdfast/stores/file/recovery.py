"""`Recovery`, which rebuilds or updates the index of a file store from all files of the folder:
after the index was lost, after a crash, and during a purge.

A power loss may roll back the index, but never an acknowledged write to a log's file. So a log that
is missing in the index is added to it, unless the journal says that the log was deleted.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Set
from pathlib import Path

import msgspec

from ...log.catalog import Row
from ...log.events import Key, Scope
from ..port import Damage
from ..sql.tables import LIVE, RESTORING
from ..sqlite import log as logs
from ..sqlite import remove
from .folder import GONE, StoreFolder
from .index import Index, JournalEntry
from .lines import Header, parse_header, scan, unfinished
from .payloads import FilePayloads

logger = logging.getLogger("holdfast.file")

BLOBS = "[0-9a-f]" * 64


class Recovery:
    """Rebuilds and updates the index from all files of a folder, and removes files that are no
    longer needed."""

    def __init__(self, folder: StoreFolder, index: Index, payloads: FilePayloads) -> None:
        self._folder = folder
        self._index = index
        self._payloads = payloads

    def rebuild(self, conn: sqlite3.Connection) -> None:
        """Fill empty tables with all readable events, even of incomplete appends, because it is
        unknown which events were acknowledged."""
        self._make_true(conn, salvage=True, leases=False)

    def rebuild_after_crash(self, conn: sqlite3.Connection) -> None:
        """Fill empty tables so that each append is present completely or not at all. Leases are not
        restored, because newer leases may have been lost with the index."""
        self._make_true(conn, salvage=False, leases=False)

    def recover(self, conn: sqlite3.Connection) -> None:
        """Update the index after a crash or power loss, so that each append is present completely
        or not at all, together with the lease that it acquired or released."""
        self._make_true(conn, salvage=False, leases=True)

    def _make_true(self, conn: sqlite3.Connection, *, salvage: bool, leases: bool) -> None:
        said = self._index.apply_whole_journal(conn)
        deleted = {one.deleted for one in said if one.deleted is not None}
        self._adopt(conn, deleted, salvage=salvage, leases=leases)
        self.check_all(conn, deleted.union(*(one.erased for one in said)))
        for one in said:
            self._payloads.erase_again(conn, one)
        self._adopt_blobs(conn, deleted)
        self._remove_orphans(conn)

    def check_all(self, conn: sqlite3.Connection, rewritten: Set[str] = frozenset()) -> None:
        """Update the index from the files of all logs that exist or whose events forks share. The
        files of `rewritten` logs are checked even if their size is unchanged."""
        found = conn.execute(
            "SELECT id FROM logs WHERE state = ? OR id IN (SELECT base FROM logs)", (LIVE,)
        )
        for (id,) in found.fetchall():
            entry = logs.entry_by_id(conn, id)
            self._index.catch_up(conn, entry, doubt=entry.row.log in rewritten)

    def tidy(self, conn: sqlite3.Connection) -> None:
        """Rewrite the journal with only the entries that are still needed, and remove files that
        belong to no log or session."""
        said = [
            JournalEntry(claim=(tenant, name), session=session)
            for tenant, name, session in conn.execute("SELECT tenant, name, session FROM claims")
        ]
        # A deleted log must stay in the journal until the removal of its file is durable.
        deleted = self._index.deleted()
        self._adopt_blobs(conn, deleted)
        self._folder.make_removals_durable()
        aside = {name for _, name in map(_set_aside, self._blob_folders())}
        said += [
            JournalEntry(deleted=name)
            for name in sorted(deleted)
            if name in aside or self._folder.paths.log(name).exists()
        ]
        self._index.write_anew(conn, said)
        self._remove_orphans(conn)

    # Logs

    def _adopt(
        self, conn: sqlite3.Connection, deleted: set[str], *, salvage: bool, leases: bool
    ) -> None:
        """Add the logs that the index does not have, and hide those that were deleted."""
        self._forget_restored(conn)
        ids = dict(conn.execute("SELECT log, id FROM logs"))
        new = [h for h in self._headers(ids) if self._has_begun(h, salvage=salvage)]
        new.sort(key=lambda header: header.log)
        for log in deleted & set(ids):
            entry = logs.entry_by_id(conn, ids[log])
            if entry.row.tenant:
                remove.hide_log(conn, entry)
        for header in new:
            self._begin(conn, header, ids, dead=header.key is None or header.log in deleted)
        for header in new:
            if header.log in ids:
                entry = logs.entry_by_id(conn, ids[header.log])
                whole = salvage or _is_trimmed(header)
                self._index.take_file(conn, entry, salvage=whole, leases=leases)

    def _forget_restored(self, conn: sqlite3.Connection) -> None:
        """Drop restores from the index if their file already has its final name, because these
        restores were complete. They are then added like other logs that the index does not have."""
        restoring = conn.execute("SELECT id, log FROM logs WHERE state = ?", (RESTORING,))
        for id, log in restoring.fetchall():
            if self._folder.paths.log(log).exists():
                conn.execute("DELETE FROM events WHERE log = ?", (id,))
                conn.execute("DELETE FROM logs WHERE id = ?", (id,))
                self._index.gone(conn, id)

    def _has_begun(self, header: Header, *, salvage: bool) -> bool:
        """Return whether a log's file contains an event. If not, the creation of the log was
        interrupted, and the file is removed."""
        path = self._folder.paths.log(header.log)
        text = path.read_bytes()
        start = text.find(b"\n") + 1
        scanned = scan(text[start:], offset=start, seq=header.shared)
        if not salvage and not _is_trimmed(header):
            scanned = unfinished(scanned, start, header.shared)
        begun = bool(scanned.lines)
        if not begun:
            self._folder.remove(path)
            if header.key is not None:
                detail = "the line of its first event is incomplete"
                torn = Damage(problem="torn", detail=detail, key=header.key, seq=1, repaired=True)
                self._index.say(JournalEntry(damage=torn, log=header.log))
        return begun

    def _headers(self, known: Iterable[str]) -> Iterable[Header]:
        for path in sorted((self._folder.root / "logs").glob("*/*.jsonl*")):
            if path.name.partition(".")[0] in known:
                continue
            if path.suffix != ".jsonl":
                path.unlink()  # an interrupted restore or rewrite
                continue
            header = _header_of(path)
            if header is None:
                logger.error("%s has no readable first line: skipped", path)
            else:
                yield header

    def _begin(
        self, conn: sqlite3.Connection, header: Header, ids: dict[str, int], *, dead: bool
    ) -> None:
        key = header.key if header.key and not dead else Key("", "", "")
        if not dead and (older := logs.lookup(conn, key)) is not None:
            # Only the newest log can be valid; the file of the older log is kept.
            logger.error(
                "log %s has the same key as newer log %s: skipped", older.row.log, header.log
            )
            conn.execute("DELETE FROM logs WHERE id = ?", (older.id,))
            ids.pop(older.row.log, None)
        row = Row(
            tenant=key.tenant,
            session=key.session,
            thread=key.thread,
            log=header.log,
            head=header.shared,
        )
        entry = logs.begin(
            conn, row, base=ids.get(header.base or ""), shared=header.shared, state=LIVE
        )
        if dead:
            remove.save_bare(conn, entry.id, row)
        ids[header.log] = entry.id

    def headless(self, conn: sqlite3.Connection) -> list[Damage]:
        """Return a `Damage` for each log whose first line cannot be read, with the key of the log
        if the index has it."""
        return [
            Damage(
                problem="unreadable",
                detail=f"{path} has no readable first line",
                key=Key(*found) if found and found[0] is not None else None,
            )
            for path in self._headless()
            for found in [
                conn.execute(
                    "SELECT tenant, session, thread FROM logs WHERE log = ?", (path.stem,)
                ).fetchone()
            ]
        ]

    def _headless(self) -> Iterable[Path]:
        """Return the log files that are not empty, but whose first line cannot be read."""
        for path in sorted((self._folder.root / "logs").glob("*/*.jsonl")):
            if _header_of(path) is None and b"\n" in path.read_bytes():
                yield path

    # Blobs

    def _blob_folders(self) -> list[Path]:
        return sorted((self._folder.root / "blobs").iterdir())

    def _adopt_blobs(self, conn: sqlite3.Connection, deleted: set[str]) -> None:
        conn.execute(
            "UPDATE owners SET tenant = NULL, session = NULL WHERE NOT EXISTS (SELECT 1 FROM logs"
            " WHERE logs.tenant = owners.tenant AND logs.session = owners.session)"
        )
        for folder in self._blob_folders():
            scope = _owner_of(folder)
            is_aside, name = _set_aside(folder)
            if scope is None or name in deleted or not remove.has_threads(conn, scope):
                self._folder.remove(folder)  # left by an interrupted delete
                continue
            if is_aside:
                # The delete that renamed the folder was never committed.
                folder = self._folder.bring_back(folder)  # noqa: PLW2901 - it is the same one
            names = (scope.tenant, scope.session)
            conn.execute("INSERT OR IGNORE INTO owners (tenant, session) VALUES (?, ?)", names)
            conn.executemany(
                "INSERT OR IGNORE INTO blobs (owner, sha256, size, data)"
                " SELECT id, ?, ?, ? FROM owners WHERE tenant = ? AND session = ?",
                [(b.name, b.stat().st_size, b"f", *names) for b in folder.glob(BLOBS)],
            )

    # Orphans

    def _remove_orphans(self, conn: sqlite3.Connection) -> None:
        for path in self._folder.root.glob("journal.jsonl.*"):
            self._folder.remove(path)
        known = {log for (log,) in conn.execute("SELECT log FROM logs")}
        known.update(path.stem for path in self._headless())
        for path in (self._folder.root / "logs").glob("*/*"):
            if path.name.partition(".")[0] not in known or path.suffix in (".new", ".old"):
                self._folder.remove(path)
            elif path.suffix == ".apart":
                self._remove_blanked(conn, path)
        for folder in self._blob_folders():
            self._remove_unowned(conn, folder)

    def _remove_blanked(self, conn: sqlite3.Connection, folder: Path) -> None:
        """Remove the payload files of events whose data was erased."""
        kept = conn.execute(
            "SELECT seq FROM events JOIN logs ON logs.id = events.log"
            " WHERE logs.log = ? AND substr(events.data, 1, 1) = ?",
            (folder.stem, b"p"),
        )
        names = {f"{seq}.json" for (seq,) in kept}
        for path in folder.iterdir():
            if path.name not in names:
                self._folder.remove(path)

    def _remove_unowned(self, conn: sqlite3.Connection, folder: Path) -> None:
        """Remove a folder of blobs, or blobs in it, that belong to no session."""
        scope = _owner_of(folder)
        kept = {
            sha256
            for (sha256,) in conn.execute(
                "SELECT sha256 FROM blobs JOIN owners ON owners.id = blobs.owner"
                " WHERE tenant = ? AND session = ?",
                (scope.tenant, scope.session) if scope else ("", ""),
            )
        }
        if not kept or _set_aside(folder)[0]:
            self._folder.remove(folder)
        for blob in folder.glob(BLOBS):
            if blob.name not in kept:
                self._folder.remove(blob)


def _is_trimmed(header: Header) -> bool:
    """Return whether a file contains only the events of a deleted log that forks share. Such a file
    may end in the middle of an append, if no fork shares the later events."""
    return header.key is None


def _header_of(path: Path) -> Header | None:
    with path.open("rb") as file:
        header = parse_header(file.readline())
    return header if header is not None and header.log == path.stem else None


def _set_aside(folder: Path) -> tuple[bool, str]:
    """Return whether a delete has renamed this folder of blobs, and the name that it added."""
    _, aside, name = folder.name.partition(GONE)
    return bool(aside), name


def _owner_of(folder: Path) -> Scope | None:
    """Return the session to which a folder of blobs belongs; None if it is unknown."""
    try:
        return msgspec.json.decode((folder / "owner.json").read_bytes(), type=Scope)
    except (OSError, msgspec.MsgspecError):
        return None
