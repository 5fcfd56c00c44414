"""Deletion on an SQLite connection: hide the data at once, then remove it in bounded steps.

A deleted log loses its key and its row in one transaction; its events are removed in later ones.
Events that forks share are kept, in a log without a key, until the last fork is deleted. If a
delete is interrupted, the next delete completes it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

import msgspec

from ...log.catalog import Row
from ...log.events import Key, Scope
from ...values.records import Remains
from .. import rules
from ..port import Lease
from ..sql.tables import DEAD, RESTORING
from .log import entry_by_id, lookup
from .payloads import PayloadStorage, SqliteLogEntry
from .transaction import Transaction

STEP_EVENTS = 2_000
STEP_BLOBS = 8


def hide(
    conn: sqlite3.Connection,
    payloads: PayloadStorage,
    target: Scope | Key,
    fence: Lease | None = None,
    expected: int | None = None,
) -> tuple[Counter[str], list[Row]]:
    """Make a session or a thread unreachable. Returns how many logs, events, blobs, etc. were
    removed, for the receipt, and the rows of the deleted logs."""
    removed: Counter[str] = Counter()
    if fence is not None or expected is not None:
        _check(conn, payloads, target, fence, expected)
    if isinstance(target, Key):
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
        removed += hide_log(conn, entry)
        payloads.hide(conn, entry)
    if (entries or target == scope) and not has_threads(conn, scope):
        removed += _hide_scope(conn, payloads, scope)
    return removed, [entry.row for entry in entries]


def _check(
    conn: sqlite3.Connection,
    payloads: PayloadStorage,
    target: Scope | Key,
    fence: Lease | None,
    expected: int | None,
) -> None:
    """Raise `LeaseLost` if `fence` is not the newest lease, and `HeadMoved` if the last event does
    not have the number `expected`."""
    key = target if isinstance(target, Key) else Key(target.tenant, target.session, "main")
    entry = lookup(conn, key)
    if entry is not None:
        entry = payloads.current(conn, entry)
    rules.check_delete(key, entry.row if entry else None, expected)
    if fence is not None:
        entry = rules.existing(key, entry)
        rules.check_fence(entry.row, entry.lease, fence)


def has_threads(conn: sqlite3.Connection, scope: Scope) -> bool:
    """Return whether a session has at least one thread."""
    found = conn.execute(
        "SELECT 1 FROM logs WHERE tenant = ? AND session = ?", (scope.tenant, scope.session)
    )
    return found.fetchone() is not None


def hide_log(conn: sqlite3.Connection, entry: SqliteLogEntry) -> Counter[str]:
    """Make one log unreachable, and remove its snapshots, drafts and index entries. Returns what
    was removed, counted by type."""
    save_bare(conn, entry.id, entry.row)
    removed = Counter(logs=1, events=entry.row.head - entry.shared)
    for table in ("snapshots", "drafts", "pending", "terms"):
        removed[table] = conn.execute(f"DELETE FROM {table} WHERE log = ?", (entry.id,)).rowcount
    return removed


def drop_snapshots(conn: sqlite3.Connection, log: int, *, forks: bool = True) -> int:
    """Drop the snapshots of a log and, with `forks`, of all its forks. Returns the number of
    dropped snapshots."""
    if not forks:
        return conn.execute("DELETE FROM snapshots WHERE log = ?", (log,)).rowcount
    # sqlite3 counts rows only for statements that begin with DELETE, INSERT or UPDATE.
    return conn.execute(
        "DELETE FROM snapshots WHERE log IN (WITH RECURSIVE family (id) AS (SELECT ? UNION"
        " SELECT logs.id FROM logs JOIN family ON logs.base = family.id) SELECT id FROM family)",
        (log,),
    ).rowcount


def save_bare(conn: sqlite3.Connection, id: int, row: Row) -> None:
    """Mark a log as deleted, and reduce its row to the fields that its forks need."""
    bare = Row(tenant="", session="", thread="", log=row.log, head=row.head)
    conn.execute(
        "UPDATE logs SET state = ?, tenant = NULL, session = NULL, thread = NULL, owner = NULL,"
        " user = NULL, workspace = NULL, agent = NULL, phase = NULL, run = NULL, created = NULL,"
        " active = NULL, stale_at = NULL, wake = NULL, since = -1, mark = NULL, doc = ?"
        " WHERE id = ?",
        (DEAD, msgspec.json.encode(bare), id),
    )


def _hide_scope(conn: sqlite3.Connection, payloads: PayloadStorage, scope: Scope) -> Counter[str]:
    """Release the claims of a session whose last thread was deleted, and hide its blobs."""
    names = (scope.tenant, scope.session)
    claims = conn.execute(
        "SELECT name FROM claims WHERE tenant = ? AND session = ?", names
    ).fetchall()
    for (name,) in claims:
        payloads.claimed(conn, scope.tenant, name, None)
    conn.execute("DELETE FROM claims WHERE tenant = ? AND session = ?", names)
    payloads.hide_scope(conn, scope)
    (blobs,) = conn.execute(
        "SELECT count(*) FROM blobs JOIN owners ON owners.id = blobs.owner"
        " WHERE tenant = ? AND session = ?",
        names,
    ).fetchone()
    conn.execute(
        "UPDATE owners SET tenant = NULL, session = NULL WHERE tenant = ? AND session = ?", names
    )
    return Counter(claims=len(claims), blobs=blobs)


def sweep(conn: sqlite3.Connection, payloads: PayloadStorage, now: int) -> bool:
    """Remove some data of deleted logs and interrupted restores. Returns whether there may be more
    to remove."""
    conn.execute("UPDATE logs SET state = ? WHERE state = ? AND until < ?", (DEAD, RESTORING, now))
    for (owner,) in conn.execute("SELECT id FROM owners WHERE tenant IS NULL").fetchall():
        if _sweep_blobs(conn, owner):
            return True
    dead = conn.execute(f"SELECT id FROM logs WHERE state = {DEAD} ORDER BY id DESC").fetchall()
    return any(_sweep_log(conn, payloads, id) for (id,) in dead)


def _sweep_blobs(conn: sqlite3.Connection, owner: int) -> bool:
    some = conn.execute(
        "SELECT rowid FROM blobs WHERE owner = ? LIMIT ?", (owner, STEP_BLOBS)
    ).fetchall()
    for (rowid,) in some:
        conn.execute("DELETE FROM blobs WHERE rowid = ?", (rowid,))
    if not some:
        conn.execute("DELETE FROM owners WHERE id = ?", (owner,))
    return bool(some)


def _sweep_log(conn: sqlite3.Connection, payloads: PayloadStorage, id: int) -> bool:
    (kept,) = conn.execute("SELECT max(shared) FROM logs WHERE base = ?", (id,)).fetchone()
    some = conn.execute(
        "DELETE FROM events WHERE rid IN"
        " (SELECT rid FROM events WHERE log = ? AND seq > ? ORDER BY seq LIMIT ?)",
        (id, kept or 0, STEP_EVENTS),
    ).rowcount
    if some == STEP_EVENTS:
        return True
    if kept is None:
        payloads.trim(conn, id, None)
        conn.execute("DELETE FROM logs WHERE id = ?", (id,))
        return True  # its base may be unused now
    # For a deleted log, `since` is the number of the last event that was kept.
    trimmed = conn.execute(
        "UPDATE logs SET since = ? WHERE id = ? AND since <> ?", (kept, id, kept)
    )
    if trimmed.rowcount:
        payloads.trim(conn, id, kept)
    return False


def discard(conn: sqlite3.Connection, log: str) -> None:
    """Mark a restore as interrupted, so that it can be removed. `log` is the incarnation of its
    log."""
    conn.execute("UPDATE logs SET until = -1 WHERE log = ? AND state = ?", (log, RESTORING))


def shared_still(tx: Transaction, scope: Scope, deleted: Sequence[str]) -> list[Remains]:
    """Return entries of the receipt for events of the deleted logs that are kept because forks
    share them. They do not name other sessions."""
    remains = []
    for log in deleted:
        upto, threads = tx.conn.execute(
            "SELECT max(fork.shared), group_concat(DISTINCT fork.thread)"
            " FROM logs AS dead JOIN logs AS fork ON fork.base = dead.id"
            " WHERE dead.log = ? AND dead.state = ?",
            (log, DEAD),
        ).fetchone()
        if upto is not None:
            what = f"events up to {upto}, shared by forks ({threads})"
            remains.append(Remains(where=f"log {log}", what=what, remedy="delete the forks"))
    return remains
