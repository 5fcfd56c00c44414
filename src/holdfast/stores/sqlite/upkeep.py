"""Verification on a connection: recompute hashes, links, numbers, rows and claims, log by log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import msgspec

from ...errors import LogDamaged, StoreDamaged
from ...log import catalog
from ...log.catalog import Project
from ...log.codec import fingerprint
from ...log.events import Key, Scope
from ..links import LinkWalk
from ..port import Damage
from .history import blank, projected
from .log import entry_by_id, kept_of, save_row, segments
from .payloads import PayloadStorage, SqliteLogEntry
from .records import claimed
from .schema import DEAD, LIVE, translated

PAGE = 512


def logs_of(conn: sqlite3.Connection, target: Scope | Key | None) -> list[tuple[str, Key]]:
    """The logs to verify."""
    where, values = f"state = {LIVE}", []
    if target is not None:
        where += " AND tenant = ? AND session = ?"
        values += [target.tenant, target.session]
    if isinstance(target, Key):
        where += " AND thread = ?"
        values.append(target.thread)
    found = conn.execute(
        f"SELECT log, tenant, session, thread FROM logs WHERE {where} ORDER BY id", values
    )
    return [(log, Key(*key)) for log, *key in found]


def check_file(conn: sqlite3.Connection) -> Iterator[Damage]:
    """What SQLite's own check finds wrong with its file."""
    try:
        with translated():
            for (text,) in conn.execute("PRAGMA quick_check"):
                if text != "ok":
                    yield Damage(problem="unreadable", detail=" ".join(text.split()))
    except StoreDamaged as error:
        yield malformed(error)


def malformed(error: StoreDamaged, key: Key | None = None) -> Damage:
    """The finding that the file, or its part of a log, cannot be read."""
    detail = f"{error.__cause__ or error}; replace it with a backup"
    return Damage(problem="unreadable", detail=detail, key=key)


def _live(conn: sqlite3.Connection, log: str) -> SqliteLogEntry | None:
    """A log by its incarnation; None if it was deleted meanwhile."""
    found = conn.execute("SELECT id FROM logs WHERE log = ? AND state = ?", (log, LIVE)).fetchone()
    return found and entry_by_id(conn, found[0])


def check_log(
    conn: sqlite3.Connection, payloads: PayloadStorage, project: Project, log: str
) -> list[Damage]:
    """The problems of one log, its row and its claims."""
    entry = _live(conn, log)
    return [] if entry is None else _check(conn, payloads, project, entry)


def _check(
    conn: sqlite3.Connection, payloads: PayloadStorage, project: Project, entry: SqliteLogEntry
) -> list[Damage]:
    found: list[Damage] = []
    for part, after, upto in segments(conn, entry):
        # Events that a deleted log left to its forks are checked with them, all others with their
        # own log.
        own = part == entry.id
        if own or _is_dead(conn, part):
            (log,) = conn.execute("SELECT log FROM logs WHERE id = ?", (part,)).fetchone()
            left = _left_at(conn, entry) if own else None
            deleted = None if own else log
            walk = LinkWalk(entry.row, after, left, deleted=deleted, lossy=payloads.lossy)
            found += _check_events(conn, payloads, entry.row.key, part, after, upto, walk)
            found += walk.end() if own else ()
    if not any(damage.problem == "unreadable" for damage in found):
        found += _check_row(conn, payloads, project, entry)
    return found + list(_check_claims(conn, entry))


def _is_dead(conn: sqlite3.Connection, id: int) -> bool:
    (state,) = conn.execute("SELECT state FROM logs WHERE id = ?", (id,)).fetchone()
    return bool(state == DEAD)


def _left_at(conn: sqlite3.Connection, entry: SqliteLogEntry) -> bytes | None:
    """What is stored with the event at which a fork left its parent."""
    return b"" if entry.base is None else kept_of(conn, entry.base, entry.shared)


def _check_events(
    conn: sqlite3.Connection,
    payloads: PayloadStorage,
    key: Key,
    log: int,
    seq: int,
    upto: int,
    walk: LinkWalk,
) -> Iterator[Damage]:
    while seq < upto:
        records = conn.execute(
            "SELECT seq, id, kind, v, run, actor, cause, at, data, hash, link FROM events"
            " WHERE log = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (log, seq, upto, PAGE),
        ).fetchall()
        if not records:
            yield Damage(problem="missing", detail=f"up to {upto}", key=key, seq=seq + 1)
            walk.miss()
            return
        for *record, link in records:
            if record[0] != seq + 1:
                walk.miss()
                yield Damage(
                    problem="missing", detail=f"up to {record[0] - 1}", key=key, seq=seq + 1
                )
            seq = record[0]
            try:
                (event,) = payloads.get(conn, log, key, [tuple(record)])
                sound = fingerprint(event) == record[9]
                detail = "differs from its hash"
            except LogDamaged as error:
                sound, detail = False, error.problem
            if sound:
                yield from walk.look(event, record[9], link)
            else:
                walk.skip(link)
                yield Damage(problem="unreadable", detail=detail, key=key, seq=seq)


def _check_row(
    conn: sqlite3.Connection, payloads: PayloadStorage, project: Project, entry: SqliteLogEntry
) -> Iterator[Damage]:
    try:
        row = projected(conn, payloads, project, entry)
    except LogDamaged:
        return  # reported with its event
    if not catalog.agrees(entry.row, row):
        yield Damage(problem="row", detail="differs from its log", key=entry.row.key)
        return
    listed = {
        (map, key, term)
        for map, key, term in conn.execute(
            "SELECT map, key, term FROM terms WHERE log = ?", (entry.id,)
        )
    }
    open_items = {id for (id,) in conn.execute("SELECT id FROM pending WHERE log = ?", (entry.id,))}
    # For a moved log, entries of an earlier version are still there.
    waits = row.sealed is not None or open_items == set(row.pending)
    if listed != catalog.row_terms(row) or not waits:
        yield Damage(
            problem="row", detail="the index of the row differs from the row", key=entry.row.key
        )


def _check_claims(conn: sqlite3.Connection, entry: SqliteLogEntry) -> Iterator[Damage]:
    key = entry.row.key
    for name in catalog.bound(entry.row):
        if claimed(conn, key.tenant, catalog.SURFACE_CLAIM + name) != key.scope:
            yield Damage(problem="claim", detail=f"surface {name} is not claimed", key=key)


def repair(
    conn: sqlite3.Connection, payloads: PayloadStorage, project: Project, log: str
) -> list[Damage]:
    """Repair what can be repaired: damaged events are erased, rows rebuilt. The damage is found
    here, in the transaction that repairs it."""
    entry = _live(conn, log)
    found = [] if entry is None else _check(conn, payloads, project, entry)
    if entry is None or not found:
        return []
    lost = [damage.seq for damage in found if damage.problem == "unreadable" and damage.seq]
    for part, after, upto in segments(conn, entry):
        if some := [seq for seq in lost if after < seq <= upto]:
            blank(conn, payloads, project, part, some, "damaged", damaged=True)
    if any(damage.problem in ("unreadable", "row") for damage in found):
        for table in ("snapshots", "terms", "pending"):
            conn.execute(f"DELETE FROM {table} WHERE log = ?", (entry.id,))
        entry = entry_by_id(conn, entry.id)
        save_row(conn, entry.id, None, projected(conn, payloads, project, entry))
    return [
        msgspec.structs.replace(damage, repaired=damage.problem in ("unreadable", "row"))
        for damage in found
    ]
