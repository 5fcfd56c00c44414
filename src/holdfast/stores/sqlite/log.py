"""Functions that append to a log, read it, and read and write its row, on an SQLite connection.

They are plain functions, each called inside a transaction of the writer or of a reader.
`rules.extend` decides what an append writes; this module reads and writes the tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from operator import attrgetter

import msgspec

from ...errors import HoldfastError, LogDamaged
from ...log import catalog
from ...log.catalog import Row, RowChange
from ...log.events import Event, Key
from .. import rules
from ..paging import Page, ReadBounds, dense
from ..rules import AppendRequest, Extension, LeaseState
from ..sql.tables import LIVE, Segment
from .payloads import PayloadStorage, Record, SqliteLogEntry
from .transaction import Transaction

PAGE_BYTES = 4 << 20

_row_decoder = msgspec.json.Decoder(Row)
_encode = msgspec.json.Encoder().encode

# The fields that the indexes of `logs` use, in the order of its columns.
_COLUMNS = ("user", "workspace", "agent", "phase", "run", "created", "active", "stale_at", "wake")
_columns = attrgetter(*_COLUMNS)
_UNSET = object()  # differs from every value of a column
_maps = attrgetter(*catalog.MAPS)
_envelope = attrgetter("seq", "id", "kind", "v", "run", "actor", "cause", "at")

_ENTRY = "id, base, shared, token, owner, since, until, renewed, mark, doc"

INSERT = (
    "INSERT INTO events (log, seq, id, kind, v, run, actor, cause, at, hash, data, link)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


# Looking up


def lookup(conn: sqlite3.Connection, key: Key) -> SqliteLogEntry | None:
    """Return the log with this key, if it exists."""
    found = conn.execute(
        f"SELECT {_ENTRY} FROM logs WHERE tenant = ? AND session = ? AND thread = ?",
        (key.tenant, key.session, key.thread),
    ).fetchone()
    return found and _entry(conn, found)


def existing(conn: sqlite3.Connection, key: Key, log: str | None = None) -> SqliteLogEntry:
    """Return the log with this key. Raises `SessionNotFound` if it does not exist, and
    `LogReplaced` if it is not the incarnation `log`."""
    return rules.existing(key, lookup(conn, key), log)


def entry_by_id(conn: sqlite3.Connection, id: int) -> SqliteLogEntry:
    found = conn.execute(f"SELECT {_ENTRY} FROM logs WHERE id = ?", (id,)).fetchone()
    return _entry(conn, found)


def _entry(conn: sqlite3.Connection, record: Record) -> SqliteLogEntry:
    id, base, shared, *lease, doc = record
    return SqliteLogEntry(id, base, shared, LeaseState(*lease), row_of(conn, id, doc))


def row_of(conn: sqlite3.Connection, id: int, doc: bytes) -> Row:
    """Decode a log's row. If the JSON in the column `doc` is damaged, build a row from the other
    columns."""
    try:
        return _row_decoder.decode(doc)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
        tenant, session, thread, log, shared, created = conn.execute(
            "SELECT tenant, session, thread, log, shared, created FROM logs WHERE id = ?", (id,)
        ).fetchone()
        (head,) = conn.execute("SELECT max(seq) FROM events WHERE log = ?", (id,)).fetchone()
        return Row(
            tenant=tenant or "",
            session=session or "",
            thread=thread or "",
            log=log,
            head=head or shared,
            created=created or 0,
        )


def segments(conn: sqlite3.Connection, entry: SqliteLogEntry) -> list[Segment]:
    """Return which logs store the events of this log, as (log, after, upto), oldest first."""
    found = [(entry.id, entry.shared, entry.row.head)]
    base, upto = entry.base, entry.shared
    while base is not None:
        id, (base, shared) = base, _base(conn, base)
        found.append((id, shared, upto))
        upto = shared
    return found[::-1]


def _base(conn: sqlite3.Connection, id: int) -> tuple[int | None, int]:
    base, shared = conn.execute("SELECT base, shared FROM logs WHERE id = ?", (id,)).fetchone()
    return base, shared


def seqs(
    tx: Transaction, key: Key, ids: Sequence[str], *, log: str | None = None
) -> dict[str, int]:
    """Return the numbers of the events with these ids in the log with this key."""
    return known_ids(tx.conn, existing(tx.conn, key, log), ids)


def known_ids(
    conn: sqlite3.Connection, entry: SqliteLogEntry, ids: Sequence[str]
) -> dict[str, int]:
    """Return the numbers of the events with these ids that are in the log or shared with it."""
    known: dict[str, int] = {}
    if entry.row.head == 0:
        return known
    parts = [(entry.id, 0, entry.row.head)] if entry.base is None else segments(conn, entry)
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        for log, _, upto in parts:
            known.update(
                (id, seq)
                for id, seq in conn.execute(_known_sql(len(some)), (log, *some))
                if seq <= upto
            )
    return known


@cache
def _known_sql(count: int) -> str:
    marks = ",".join("?" * count)
    return f"SELECT id, seq FROM events INDEXED BY events_id WHERE log = ? AND id IN ({marks})"


# Appending


def append(tx: Transaction, request: AppendRequest) -> Extension:
    """Perform one append. Writes nothing if the append is rejected."""
    conn, payloads, recent, key = tx.conn, tx.payloads, tx.recent, request.key
    now = tx.clock()
    entry = recent.get(key) or lookup(conn, key)
    begins = entry is None and request.begins
    if entry is not None:
        entry = recent[key] = payloads.current(conn, entry)
    elif begins:
        entry = SqliteLogEntry(0, None, 0, LeaseState(), rules.new_row(key, now))
    entry = rules.existing(key, entry, request.log)
    decide = partial(request.decide, entry.row, entry.lease, project=tx.project, now=now)
    plan = None
    if begins:
        plan = decide({})
        entry = begin(conn, entry.row)
        write(conn, payloads, entry, plan)
    else:
        plan = _hope(conn, payloads, entry, decide)
    if plan is None:
        plan = decide(known_ids(conn, entry, request.ids))
        write(conn, payloads, entry, plan)
    lease = entry.lease
    if plan.lease_state is not None:
        lease = plan.lease_state
        save_lease(conn, entry.id, lease)
    drafts = entry.drafts and has_drafts(conn, entry.id)
    recent[key] = SqliteLogEntry(entry.id, entry.base, entry.shared, lease, plan.row, drafts)
    return plan


def _hope(
    conn: sqlite3.Connection,
    payloads: PayloadStorage,
    entry: SqliteLogEntry,
    decide: Callable[[dict[str, int]], Extension],
) -> Extension | None:
    """Append on the assumption that all ids are new, which is nearly always true; the unique index
    verifies this. Returns None, without writing, if an id is already in the log."""
    if entry.base is not None:
        return None
    try:
        plan = decide({})
    except HoldfastError:
        return None  # the rejection does not count if the ids are known: look them up first
    try:
        write(conn, payloads, entry, plan)
    except sqlite3.IntegrityError:
        for table in ("events", "payloads"):
            conn.execute(
                f"DELETE FROM {table} WHERE log = ? AND seq > ?", (entry.id, entry.row.head)
            )
        return None
    return plan


def begin(
    conn: sqlite3.Connection,
    row: Row,
    *,
    base: int | None = None,
    shared: int = 0,
    state: int = LIVE,
    until: int = 0,
) -> SqliteLogEntry:
    """Create an empty log. A log that is being restored gets no key yet."""
    key = (row.tenant, row.session, row.thread) if state == LIVE else (None, None, None)
    cursor = conn.execute(
        "INSERT INTO logs (log, state, tenant, session, thread, base, shared, token, since, until,"
        " user, workspace, agent, phase, run, created, active, stale_at, wake, doc)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (row.log, state, *key, base, shared, until, *_columns(row), _encode(row)),
    )
    assert cursor.lastrowid is not None
    return SqliteLogEntry(cursor.lastrowid, base, shared, LeaseState(), row)


def write(
    conn: sqlite3.Connection,
    payloads: PayloadStorage,
    entry: SqliteLogEntry,
    plan: Extension,
    *,
    listed: bool = True,
) -> None:
    """Write new events, and the log's row after these events."""
    if not plan.fresh:
        return
    columns = payloads.put(conn, entry, plan)
    conn.executemany(
        INSERT,
        [
            record_of(entry.id, *one)
            for one in zip(plan.fresh, plan.hashes, columns, plan.links, strict=True)
        ],
    )
    payloads.keep(conn)
    if entry.drafts:
        drop_drafts(conn, entry.id, plan.changes)
    if listed:
        save_row(conn, entry.id, entry.row, plan.row)
    else:
        conn.execute("UPDATE logs SET doc = ? WHERE id = ?", (_encode(plan.row), entry.id))


def record_of(log: int, event: Event, hash: bytes, data: bytes, link: bytes | None) -> Record:
    """Return the values of the `INSERT` statement for an event."""
    return (log, *_envelope(event), hash, data, link)


def save_lease(conn: sqlite3.Connection, id: int, state: LeaseState) -> None:
    """Write the newest lease of a log."""
    conn.execute(
        "UPDATE logs SET token = ?, owner = ?, since = ?, until = ?, renewed = ?, mark = ?"
        " WHERE id = ?",
        (*msgspec.structs.astuple(state), id),
    )


def has_drafts(conn: sqlite3.Connection, log: int) -> bool:
    found = conn.execute("SELECT 1 FROM drafts WHERE log = ? LIMIT 1", (log,))
    return found.fetchone() is not None


def drop_drafts(conn: sqlite3.Connection, log: int, changes: Iterable[RowChange]) -> None:
    for change in changes:
        for op in change:
            if op.do == "drop_draft":
                conn.execute("DELETE FROM drafts WHERE log = ? AND message = ?", (log, op.key))


def save_row(conn: sqlite3.Connection, id: int, old: Row | None, new: Row) -> None:
    """Replace the row `old` with `new`, and update only indexes whose fields changed. `old` is None
    if the log is not in the indexes yet."""
    # SQLite rewrites every index of an assigned column, even if its value stays the same.
    before = (_UNSET,) * len(_COLUMNS) if old is None else _columns(old)
    after = _columns(new)
    places = () if before == after else tuple([n for n, v in enumerate(after) if v != before[n]])
    values = [after[place] for place in places]
    conn.execute(_row_sql(places), (*values, _encode(new), id))
    if old is None:
        old = Row(tenant=new.tenant, session=new.session, thread=new.thread, log=new.log)
    changed = _maps(old) != _maps(new)
    if changed or old.active != new.active:
        _save_terms(conn, id, old, new)
    if changed or old.sealed != new.sealed:
        _save_pending(conn, id, old, new)


@cache
def _row_sql(places: tuple[int, ...]) -> str:
    """Return the statement that sets the columns at these places of `_COLUMNS` and `doc`."""
    columns = "".join(f"{_COLUMNS[place]} = ?, " for place in places)
    return f"UPDATE logs SET {columns}doc = ? WHERE id = ?"


def _save_terms(conn: sqlite3.Connection, id: int, old: Row, new: Row) -> None:
    """Update the index entries of a log's labels and other maps in the table `terms`. They include
    `active`, so that results are sorted by it."""
    before = {(old.tenant, *term, old.active, id) for term in catalog.row_terms(old)}
    after = {(new.tenant, *term, new.active, id) for term in catalog.row_terms(new)}
    conn.executemany(
        "DELETE FROM terms WHERE tenant = ? AND map = ? AND key = ? AND term = ?"
        " AND active = ? AND log = ?",
        before - after,
    )
    conn.executemany(
        "INSERT INTO terms (tenant, map, key, term, active, log) VALUES (?, ?, ?, ?, ?, ?)",
        after - before,
    )


def _save_pending(conn: sqlite3.Connection, id: int, old: Row, new: Row) -> None:
    before, after = catalog.waiting(old), catalog.waiting(new)
    conn.executemany(
        "DELETE FROM pending WHERE log = ? AND id = ?",
        [(id, name) for name in before if name not in after],
    )
    conn.executemany(
        "INSERT OR REPLACE INTO pending (log, id, tenant, session, what, assignee, at, seq, item)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (id, i.id, i.tenant, i.session, i.what, i.assignee, i.at, i.seq, _encode(i))
            for i in catalog.pending_items(new)
            if before.get(i.id) != after[i.id]
        ],
    )


# Reading


def read_page(tx: Transaction, key: Key, bounds: ReadBounds) -> Page:
    """Return the incarnation, one page of its events, and the error that ended the read, if any."""
    conn, payloads = tx.conn, tx.payloads
    entry = existing(conn, key, bounds.log)
    after, reverse = bounds.after, bounds.reverse
    upto = bounds.upto(entry.row.head)
    parts = [(entry.id, 0, upto)] if entry.base is None else segments(conn, entry)
    events: list[Event] = []
    damage: LogDamaged | None = None
    for part, low, high in reversed(parts) if reverse else parts:
        first, last = max(low, after), min(high, upto)
        if first >= last:
            continue
        limit, size = bounds.page - len(events), sum([len(event.data) for event in events])
        records = records_of(
            conn, part, payloads.columns, first, last, limit, reverse=reverse, size=size
        )
        if not bounds.inline:
            records = [_stubbed(record) for record in records]
        try:
            for event in payloads.get(conn, part, key, records):
                events.append(event)
        except LogDamaged as error:
            damage = error
            break
        reached = first + 1 if reverse else last
        if not events or events[-1].seq != reached or len(events) >= bounds.page:
            break  # the next segment follows only when this one is read to its end
    return entry.row.log, *dense(key, after, upto, events, damage, reverse=reverse)


def records_of(
    conn: sqlite3.Connection,
    log: int,
    columns: str,
    after: int,
    upto: int,
    limit: int,
    *,
    reverse: bool = False,
    size: int = 0,
) -> list[Record]:
    """Return records of the events that a log stores. The page ends early when the data, including
    `size` bytes read before, exceeds `PAGE_BYTES`."""
    order = "DESC" if reverse else "ASC"
    cursor = conn.execute(
        f"SELECT {columns} FROM events WHERE log = ? AND seq > ? AND seq <= ?"
        f" ORDER BY seq {order} LIMIT ?",
        (log, after, upto, limit),
    )
    records = []
    for record in cursor:
        records.append(record)
        data = record[8]
        # Data stored apart is large, so it ends the page.
        size += PAGE_BYTES if data[:1] == b"p" else len(data)
        if size >= PAGE_BYTES:
            break
    cursor.close()
    return records


def _stubbed(record: Record) -> Record:
    data = record[8]
    return (*record[:8], b"s" + data[1:], *record[9:]) if data[:1] == b"p" else record
