"""Operations on whole logs, on a connection: fork, restore, erase, and rebuilding a row."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from ...errors import InvalidValue, LogDamaged, SessionExists, StoreUnavailable
from ...log import catalog
from ...log.catalog import Project, Row
from ...log.codec import dense, erased, fingerprint
from ...log.events import Event, Key, NewEvent
from .. import links, rules
from ..paging import PAGE_EVENTS
from ..port import Lease
from .log import (
    begin,
    entry_by_id,
    existing,
    holder,
    kept_of,
    known_ids,
    lookup,
    records_of,
    save_row,
    write,
)
from .payloads import KeptHash, PayloadStorage, Record, SqliteLogEntry, event_of
from .schema import LIVE, RESTORING
from .transaction import Transaction

# Forking and restoring


def fork(tx: Transaction, key: Key, thread: str, *, at: int, first: NewEvent) -> None:
    """Create a thread that shares the events up to `at`."""
    conn, payloads, now = tx.conn, tx.payloads, tx.clock()
    entry = payloads.current(conn, existing(conn, key))
    target = Key(key.tenant, key.session, thread)
    there = lookup(conn, target)
    if there is not None:
        known = known_ids(conn, there, [first.id])
        if there.shared == at > 0 and known.get(first.id) == at + 1:
            return
        raise SessionExists(tenant=key.tenant, session=key.session, thread=thread)
    rules.check_open(entry.row)
    rules.check_at(entry.row, at)
    if known_ids(conn, entry, [first.id]).get(first.id, at + 1) <= at:
        raise InvalidValue(
            field="first",
            problem="has the id of an event in the shared history",
            remedy="use a new id",
        )
    base = holder(conn, entry, at)
    row = rules.new_row(target, now, at=at, base=links.link_in(kept_of(conn, base, at)))
    event = first.numbered(at + 1, now)
    plan = rules.extended(row, [event], links.seals([event]), [tx.project(event)])
    write(conn, payloads, begin(conn, row, base=base, shared=at), plan)


def begin_restore(
    conn: sqlite3.Connection, now: int, until: int, key: Key, parent: catalog.Parent | None
) -> SqliteLogEntry:
    """An unnamed log to restore into."""
    if lookup(conn, key) is not None:
        raise SessionExists(tenant=key.tenant, session=key.session, thread=key.thread)
    row = rules.new_row(key, now)
    base, shared = None, 0
    if parent is not None:
        entry = existing(conn, Key(key.tenant, key.session, parent.thread))
        rules.check_at(entry.row, parent.at)
        base = holder(conn, entry, parent.at)
        shared = parent.at
        link = links.link_in(kept_of(conn, base, shared))
        row = rules.new_row(key, now, at=shared, base=link)
    return begin(conn, row, base=base, shared=shared, state=RESTORING, until=until)


def restore_some(
    conn: sqlite3.Connection,
    payloads: PayloadStorage,
    project: Project,
    until: int,
    log: str,
    events: Sequence[Event],
) -> None:
    """Write the next events of a restore with the given numbers, ids and times."""
    entry = _restoring(conn, log)
    row = entry.row
    dense(events, row.head)
    ids = [event.id for event in events]
    if len(set(ids)) < len(ids) or known_ids(conn, entry, ids):
        raise InvalidValue(field="id", problem="occurs twice", remedy="pass each event once")
    if row.head == entry.shared:
        row = msgspec.structs.replace(row, created=events[0].at, active=events[0].at // 1000)
    changes = [project(event) for event in events]
    plan = rules.extended(row, events, links.seals(events), changes)
    write(conn, payloads, entry, plan, listed=False)
    conn.execute("UPDATE logs SET until = ? WHERE id = ?", (until, entry.id))


def _restoring(conn: sqlite3.Connection, log: str) -> SqliteLogEntry:
    """The log that is being restored, by its incarnation."""
    found = conn.execute("SELECT id FROM logs WHERE log = ? AND state = ?", (log, RESTORING))
    if (record := found.fetchone()) is None:
        raise StoreUnavailable(
            problem="the restore was interrupted: it paused for too long, or the index of the "
            "store was removed meanwhile; restore the session again from its first event"
        )
    return entry_by_id(conn, record[0])


def end_restore(conn: sqlite3.Connection, payloads: PayloadStorage, key: Key, log: str) -> None:
    """Give the restored log its key."""
    entry = _restoring(conn, log)
    if entry.row.head == entry.shared:
        raise InvalidValue(field="events", problem="is empty", remedy="pass at least one event")
    if lookup(conn, key) is not None:
        raise SessionExists(tenant=key.tenant, session=key.session, thread=key.thread)
    conn.execute(
        "UPDATE logs SET state = ?, tenant = ?, session = ?, thread = ?, until = 0 WHERE id = ?",
        (LIVE, key.tenant, key.session, key.thread, entry.id),
    )
    payloads.finish(conn, entry)
    save_row(conn, entry.id, None, entry.row)


# Erasing, and rebuilding rows


def erase(
    conn: sqlite3.Connection,
    payloads: PayloadStorage,
    project: Project,
    key: Key,
    seqs: Sequence[int],
    reason: str,
    fence: Lease | None,
) -> dict[str, int]:
    """Replace the data of events; rows are rebuilt, snapshots are dropped."""
    entry = payloads.current(conn, existing(conn, key))
    numbers = rules.check_seqs(entry.row, seqs)
    if fence is not None:
        rules.check_fence(entry.row, entry.lease, fence)
    parts: dict[int, list[int]] = {}
    for seq in numbers:
        parts.setdefault(holder(conn, entry, seq), []).append(seq)
    payloads.erasing(conn, parts, reason)
    dropped = 0
    for log, some in parts.items():
        blank(conn, payloads, project, log, some, reason)
        dropped += drop_snapshots(conn, log)
    return {"payloads": len(numbers), "snapshots": dropped}


def drop_snapshots(conn: sqlite3.Connection, log: int) -> int:
    """Drop the snapshots of a log and of all its forks; returns how many there were."""
    return sum(
        conn.execute("DELETE FROM snapshots WHERE log = ?", (relative,)).rowcount
        for relative in family(conn, log)
    )


def blank(
    conn: sqlite3.Connection,
    payloads: PayloadStorage,
    project: Project,
    log: int,
    seqs: Sequence[int],
    reason: str,
    *,
    damaged: bool = False,
) -> None:
    """Replace the data of a log's own events with `{"erased": reason}`, and rebuild its row."""
    data = erased(reason)
    kept = {}
    for seq in seqs:
        id, kind, v, hash, link = conn.execute(
            "SELECT id, kind, v, hash, link FROM events WHERE log = ? AND seq = ?", (log, seq)
        ).fetchone()
        blanked = fingerprint(NewEvent(kind=kind, data=data, id=id, v=v))
        kept[seq] = KeptHash(blanked, links.erased(link, hash, damaged=damaged))
    payloads.replace(conn, log, data, kept)
    (state,) = conn.execute("SELECT state FROM logs WHERE id = ?", (log,)).fetchone()
    if state == LIVE:
        entry = entry_by_id(conn, log)
        save_row(conn, log, entry.row, projected(conn, payloads, project, entry))


def family(conn: sqlite3.Connection, id: int) -> list[int]:
    """A log and all its direct and indirect forks."""
    return [
        found
        for (found,) in conn.execute(
            "WITH RECURSIVE family (id) AS (SELECT ? UNION"
            " SELECT logs.id FROM logs JOIN family ON logs.base = family.id)"
            " SELECT id FROM family",
            (id,),
        )
    ]


def _readable(
    conn: sqlite3.Connection, payloads: PayloadStorage, entry: SqliteLogEntry, records: list[Record]
) -> list[Event]:
    """The events of some records; a damaged one comes without its data."""
    key = entry.row.key
    try:
        return list(payloads.get(conn, entry.id, key, records))
    except LogDamaged:
        if len(records) == 1:
            return [event_of(records[0], b"null")]
        return [e for record in records for e in _readable(conn, payloads, entry, [record])]


def projected(
    conn: sqlite3.Connection, payloads: PayloadStorage, project: Project, entry: SqliteLogEntry
) -> Row:
    """The row, rebuilt from the log's own events."""
    row = rules.empty_row(entry.row, entry.shared)
    upto = entry.row.head
    while row.head < upto:
        records = records_of(conn, entry.id, row.head, upto, PAGE_EVENTS, False, 0)
        events = _readable(conn, payloads, entry, records)
        if not events:
            break  # numbers are missing, which `verify` reports separately
        row = catalog.apply(row, events, [project(event) for event in events])
    return msgspec.structs.replace(row, link=links.ending(kept_of(conn, entry.id, row.head)))
