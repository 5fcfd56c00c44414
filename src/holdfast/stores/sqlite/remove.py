"""Deleting on a connection: hide at once, then remove in bounded steps.

A deleted log loses its key and its row in one transaction; its events go in later
ones. What its forks share stays, without a name, until the last of them goes. A
delete that was cut short leaves such unnamed logs, and the next one finishes them.
"""

from __future__ import annotations

import sqlite3
from collections import Counter

import msgspec

from ...catalog import Row
from ...events import Key, Scope
from ...store import Lease, Remains
from .. import rules
from .log import Entry, entry_by_id, existing, lookup
from .schema import DEAD, RESTORING

STEP_EVENTS = 2_000


def hide(
    conn: sqlite3.Connection, target: Scope | Key, fence: Lease | None
) -> tuple[Counter[str], list[Key]]:
    """Make a session or a thread unreachable; what was removed, and which logs it had."""
    removed: Counter[str] = Counter()
    if isinstance(target, Key):
        if fence is not None:
            entry = existing(conn, target)
            rules.check_fence(entry.row, entry.lease, fence)
        found = lookup(conn, target)
        entries = [found] if found else []
        scope = target.scope
    else:
        ids = conn.execute(
            "SELECT id FROM logs WHERE tenant = ? AND session = ?",
            (target.tenant, target.session),
        ).fetchall()
        entries = [entry_by_id(conn, id) for (id,) in ids]
        scope = target
    for entry in entries:
        removed += _hide_log(conn, entry)
    if not _threads(conn, scope):
        removed += _hide_scope(conn, scope)
    return removed, [entry.row.key for entry in entries]


def _threads(conn: sqlite3.Connection, scope: Scope) -> bool:
    found = conn.execute(
        "SELECT 1 FROM logs WHERE tenant = ? AND session = ?", (scope.tenant, scope.session)
    )
    return found.fetchone() is not None


def _hide_log(conn: sqlite3.Connection, entry: Entry) -> Counter[str]:
    bare = Row(tenant="", session="", thread="", log=entry.row.log, head=entry.row.head)
    conn.execute(
        "UPDATE logs SET state = ?, tenant = NULL, session = NULL, thread = NULL, owner = NULL,"
        " user = NULL, workspace = NULL, agent = NULL, phase = NULL, run = NULL, created = NULL,"
        " active = NULL, stale_at = NULL, wake = NULL, doc = ? WHERE id = ?",
        (DEAD, msgspec.json.encode(bare), entry.id),
    )
    removed = Counter(logs=1, events=entry.row.head - entry.shared)
    for table in ("snapshots", "drafts", "pending", "terms"):
        removed[table] = conn.execute(f"DELETE FROM {table} WHERE log = ?", (entry.id,)).rowcount
    return removed


def _hide_scope(conn: sqlite3.Connection, scope: Scope) -> Counter[str]:
    """What a session owns goes with its last thread."""
    names = (scope.tenant, scope.session)
    claims = conn.execute("DELETE FROM claims WHERE tenant = ? AND session = ?", names).rowcount
    (blobs,) = conn.execute(
        "SELECT count(*) FROM blobs JOIN owners ON owners.id = blobs.owner"
        " WHERE tenant = ? AND session = ?",
        names,
    ).fetchone()
    conn.execute(
        "UPDATE owners SET tenant = NULL, session = NULL WHERE tenant = ? AND session = ?", names
    )
    return Counter(claims=claims, blobs=blobs)


def sweep(conn: sqlite3.Connection, now: int) -> bool:
    """Remove some of what is hidden; whether there may be more."""
    conn.execute("UPDATE logs SET state = ? WHERE state = ? AND until < ?", (DEAD, RESTORING, now))
    for (id,) in conn.execute("SELECT id FROM owners WHERE tenant IS NULL").fetchall():
        some = conn.execute(
            "DELETE FROM blobs WHERE rowid IN (SELECT rowid FROM blobs WHERE owner = ? LIMIT 8)",
            (id,),
        )
        if some.rowcount:
            return True
        conn.execute("DELETE FROM owners WHERE id = ?", (id,))
    dead = conn.execute(f"SELECT id FROM logs WHERE state = {DEAD} ORDER BY id DESC").fetchall()
    return any(_sweep_log(conn, id) for (id,) in dead)


def _sweep_log(conn: sqlite3.Connection, id: int) -> bool:
    (kept,) = conn.execute("SELECT max(shared) FROM logs WHERE base = ?", (id,)).fetchone()
    some = conn.execute(
        "DELETE FROM events WHERE rid IN"
        " (SELECT rid FROM events WHERE log = ? AND seq > ? ORDER BY seq LIMIT ?)",
        (id, kept or 0, STEP_EVENTS),
    ).rowcount
    conn.execute("DELETE FROM payloads WHERE log = ? AND seq > ?", (id, kept or 0))
    if some:
        return True
    if kept is None:
        conn.execute("DELETE FROM logs WHERE id = ?", (id,))
        return True  # its own base may have become free
    return False


def shared_still(conn: sqlite3.Connection) -> list[Remains]:
    """What forks keep of deleted threads."""
    found = conn.execute(
        "SELECT dead.log, max(fork.shared), group_concat(DISTINCT fork.thread)"
        " FROM logs AS dead JOIN logs AS fork ON fork.base = dead.id"
        f" WHERE dead.state = {DEAD} GROUP BY dead.id"
    )
    return [
        Remains(
            where=f"log {log}",
            what=f"events up to {upto}, shared by forks ({threads})",
            remedy="delete the forks",
        )
        for log, upto, threads in found
    ]
