"""Functions that read and write leases, drafts, snapshots, blobs and claims on an SQLite
connection."""

from __future__ import annotations

import sqlite3

from msgspec import Raw

from ...errors import SessionNotFound
from ...log.events import Key, Scope
from .. import rules
from ..blobs import found_blob, is_sha256
from ..port import BlobRef, Draft, Holder, Lease, Snapshot
from ..rules import LeaseState
from .log import existing, known_ids, lookup, save_lease
from .payloads import SqliteLogEntry
from .remove import has_threads
from .transaction import Transaction

# Leases. These functions and `put_draft` update `recent`, the cache of recently written logs.


def acquire(
    tx: Transaction,
    key: Key,
    owner: str,
    *,
    ttl: float = 15.0,
    steal: str | None = None,
    mark: str | None = None,
) -> Lease:
    entry = _recent(tx, key)
    lease, state = rules.acquire(
        entry.row, entry.lease, owner, ttl=ttl, steal=steal, mark=mark, now=tx.clock()
    )
    _save_lease(tx, entry, state)
    return lease


def renew(tx: Transaction, lease: Lease) -> Lease:
    entry = _recent(tx, lease.key)
    renewed, state = rules.renew(entry.row, entry.lease, lease, tx.clock())
    _save_lease(tx, entry, state)
    return renewed


def release(tx: Transaction, lease: Lease, *, head: int | None = None) -> None:
    entry = _recent(tx, lease.key)
    _save_lease(tx, entry, rules.release(entry.row, entry.lease, lease, head))


def holder(tx: Transaction, key: Key) -> Holder | None:
    entry = lookup(tx.conn, key)
    return rules.holder(entry.lease, tx.clock()) if entry else None


def _recent(tx: Transaction, key: Key) -> SqliteLogEntry:
    entry = tx.payloads.current(tx.conn, tx.recent.get(key) or existing(tx.conn, key))
    tx.recent[key] = entry
    return entry


def _save_lease(tx: Transaction, entry: SqliteLogEntry, state: LeaseState) -> None:
    save_lease(tx.conn, entry.id, state)
    tx.recent[entry.row.key] = entry._replace(lease=state)


# Drafts


def put_draft(
    tx: Transaction, key: Key, message: str, offset: int, text: str, fence: Lease
) -> None:
    entry = _recent(tx, key)
    rules.check_fence(entry.row, entry.lease, fence)
    tx.recent[key] = entry._replace(drafts=True)
    tx.conn.execute(
        "INSERT OR REPLACE INTO drafts (log, message, token, start, text) VALUES (?, ?, ?, ?, ?)",
        (entry.id, message, fence.token, offset, text),
    )


def drafts(tx: Transaction, key: Key) -> list[Draft]:
    entry = existing(tx.conn, key)
    found = tx.conn.execute(
        "SELECT message, token, start, text FROM drafts WHERE log = ?", (entry.id,)
    )
    drafts = rules.joined_drafts(found)
    done = known_ids(tx.conn, entry, [draft.message for draft in drafts])
    return [draft for draft in drafts if draft.message not in done]


# Snapshots


def save_snapshot(
    tx: Transaction, key: Key, snapshot: Snapshot, *, fence: Lease | None = None
) -> None:
    entry = tx.payloads.current(tx.conn, existing(tx.conn, key))
    rules.check_snapshot(entry.row, snapshot)
    if fence is not None:
        rules.check_fence(entry.row, entry.lease, fence)
    token = fence.token if fence is not None else None
    kept = tx.conn.execute(
        "SELECT token, seq FROM snapshots WHERE log = ? AND version = ?",
        (entry.id, snapshot.version),
    ).fetchone()
    if rules.keeps_snapshot(token, snapshot.seq, kept):
        token = token or (kept[0] if kept else 0)
        tx.conn.execute(
            "INSERT OR REPLACE INTO snapshots (log, version, token, seq, state)"
            " VALUES (?, ?, ?, ?, ?)",
            (entry.id, snapshot.version, token, snapshot.seq, b"j" + bytes(snapshot.state)),
        )


def load_snapshot(tx: Transaction, key: Key, version: str) -> Snapshot | None:
    entry = existing(tx.conn, key)
    found = tx.conn.execute(
        "SELECT seq, state FROM snapshots WHERE log = ? AND version = ?", (entry.id, version)
    ).fetchone()
    if found is None or found[1][:1] != b"j":
        return None
    return Snapshot(log=entry.row.log, seq=found[0], version=version, state=Raw(found[1][1:]))


# Blobs


def put_blob(tx: Transaction, scope: Scope, data: bytes, sha256: str) -> BlobRef:
    conn, names = tx.conn, (scope.tenant, scope.session)
    if not has_threads(conn, scope):
        raise SessionNotFound(tenant=scope.tenant, session=scope.session)
    conn.execute("INSERT OR IGNORE INTO owners (tenant, session) VALUES (?, ?)", names)
    owner = _owner(conn, scope)
    assert owner is not None
    if _blob(conn, owner, sha256) is None:
        conn.execute(
            "INSERT INTO blobs (owner, sha256, size, data) VALUES (?, ?, ?, ?)",
            (owner, sha256, len(data), tx.payloads.put_blob(scope, sha256, data)),
        )
    return BlobRef(sha256, len(data))


def get_blob(tx: Transaction, scope: Scope, ref: BlobRef, *, checked: bool = True) -> bytes:
    owner = _owner(tx.conn, scope) if is_sha256(ref.sha256) else None
    column = None if owner is None else _blob(tx.conn, owner, ref.sha256)
    data = None if column is None else tx.payloads.get_blob(scope, ref.sha256, column)
    return found_blob(scope, ref, data, checked=checked)


def blobs(tx: Transaction, scope: Scope) -> list[BlobRef]:
    found = tx.conn.execute(
        "SELECT sha256, size FROM blobs JOIN owners ON owners.id = blobs.owner"
        " WHERE tenant = ? AND session = ? ORDER BY sha256",
        (scope.tenant, scope.session),
    )
    return [BlobRef(sha256, size) for sha256, size in found]


def _owner(conn: sqlite3.Connection, scope: Scope) -> int | None:
    found = conn.execute(
        "SELECT id FROM owners WHERE tenant = ? AND session = ?", (scope.tenant, scope.session)
    ).fetchone()
    return None if found is None else int(found[0])


def _blob(conn: sqlite3.Connection, owner: int, sha256: str) -> bytes | None:
    found = conn.execute(
        "SELECT data FROM blobs WHERE owner = ? AND sha256 = ?", (owner, sha256)
    ).fetchone()
    return None if found is None else bytes(found[0])


# Claims


def claim(
    tx: Transaction, tenant: str, name: str, owner: Scope, *, instead_of: Scope | None = None
) -> Scope:
    holder = claimed(tx.conn, tenant, name)
    if holder is None or holder == instead_of:
        tx.conn.execute(
            "INSERT OR REPLACE INTO claims (tenant, name, session) VALUES (?, ?, ?)",
            (tenant, name, owner.session),
        )
        tx.payloads.claimed(tx.conn, tenant, name, owner.session)
        holder = owner
    return holder


def claimed(conn: sqlite3.Connection, tenant: str, name: str) -> Scope | None:
    """Return the session that holds a name; None if it is not claimed."""
    found = conn.execute(
        "SELECT session FROM claims WHERE tenant = ? AND name = ?", (tenant, name)
    ).fetchone()
    return found and Scope(tenant, found[0])


def unclaim(tx: Transaction, tenant: str, name: str, owner: Scope) -> None:
    given_up = tx.conn.execute(
        "DELETE FROM claims WHERE tenant = ? AND name = ? AND session = ?",
        (tenant, name, owner.session),
    )
    if given_up.rowcount:
        tx.payloads.claimed(tx.conn, tenant, name, None)


def claims(tx: Transaction, owner: Scope) -> list[str]:
    found = tx.conn.execute(
        "SELECT name FROM claims WHERE tenant = ? AND session = ? ORDER BY name",
        (owner.tenant, owner.session),
    )
    return [name for (name,) in found]
