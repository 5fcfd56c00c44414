"""The entries of events in a full-text index of SQLite: their ids, how they are added and found.

The ids follow the times of the events, so that FTS5 returns the newest first.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Sequence
from typing import Any

from ...log.search import Condition
from .index import Advance, Doc, floor_of

SHIFT = 8  # bits that the ids of this index leave out of the places of `index.floor_of`
SPAN = 1 << 12  # ids of one millisecond; FTS5 stores differences of ids, so fewer take less space
PROBES = 512  # ids of a millisecond that are tried before those of earlier ones
PREFIX_STEPS = 800  # steps of SQLite that a search for a prefix takes at most
_CANDIDATE = "d.id, d.seq, l.log, l.tenant, l.session, l.thread, l.seq, l.link, l.rewinds"


def add_docs(conn: sqlite3.Connection, log: int, advance: Advance) -> None:
    """Add the index entries of a log. Those that exist already are skipped, because the log is
    indexed again from the start."""
    found = conn.execute(
        "SELECT seq, id FROM docs WHERE log = ? AND seq BETWEEN ? AND ?",
        (log, advance.before.seq, advance.after.seq),
    )
    known = dict(found.fetchall())
    last = known.get(advance.before.seq)
    for doc in advance.docs:
        id = known.get(doc.seq)
        if id is None:
            id = _free_id(conn, doc, advance.after.log, last)
            conn.execute(
                "INSERT INTO docs (id, log, seq, crc, extra) VALUES (?, ?, ?, ?, ?)",
                (id, log, doc.seq, doc.crc, doc.extra),
            )
            conn.execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", (id, doc.terms))
        last = id


def id_at(place: int) -> int:
    """Return the first id whose place is not before `place`."""
    return -(-place >> SHIFT)


def _free_id(conn: sqlite3.Connection, doc: Doc, log: str, last: int | None) -> int:
    """Return an unused id for an event: among those of its millisecond, if possible after `last`,
    the id of the log's previous event. A millisecond without free ids uses those of earlier ones;
    the largest distance is stored, because a search since a time must go back that far."""
    first = id_at(floor_of(doc.at))
    start = first + zlib.crc32(log.encode()) % (SPAN // 2)
    if last is not None and start <= last < first + SPAN:
        start = last + 1
    end = min(start + PROBES, first + SPAN)
    used = conn.execute("SELECT id FROM docs WHERE id >= ? AND id < ? ORDER BY id", (start, end))
    for (taken,) in used:
        if taken > start:
            break
        start += 1
    return start if start < end else _spilled_id(conn, first, f"{log} {doc.seq}")


def _spilled_id(conn: sqlite3.Connection, first: int, name: str) -> int:
    """Return an unused id before `first`, at random within a distance that grows with each try."""
    random = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    span = SPAN
    while True:
        distance = random % span + 1
        id = first - distance
        if conn.execute("SELECT 1 FROM docs WHERE id = ?", (id,)).fetchone() is None:
            break
        span *= 2
    if distance > int(meta(conn, "spilled") or 0):
        set_meta(conn, "spilled", str(distance))
    return id


class TooManyTerms(Exception):
    """Too many terms begin with a prefix."""


def matches(
    conn: sqlite3.Connection, tenant: str, wanted: Sequence[Condition], places: tuple[int, int, int]
) -> list[Any]:
    """Return the entries that match, newest first. `places` are the end of a range of ids, its
    start, and the number of entries. Raises `TooManyTerms`: FTS5 merges all terms with a prefix
    before it returns the first match."""
    if not any(not one.negative for one in wanted):
        return conn.execute(
            f"SELECT {_CANDIDATE} FROM docs AS d CROSS JOIN logs AS l ON l.id = d.log"
            " WHERE d.id < ? AND d.id >= ? AND l.tenant = ? ORDER BY d.id DESC LIMIT ?",
            (*places[:2], tenant, places[2]),
        ).fetchall()
    expression = _expression(wanted, tenant_number(conn, tenant))
    if any(one.prefix for one in wanted):
        conn.set_progress_handler(lambda: True, PREFIX_STEPS)
    try:
        return conn.execute(
            f"SELECT {_CANDIDATE} FROM words CROSS JOIN docs AS d ON d.id = words.rowid"
            " CROSS JOIN logs AS l ON l.id = d.log"
            " WHERE words MATCH ? AND words.rowid < ? AND words.rowid >= ?"
            " ORDER BY words.rowid DESC LIMIT ?",
            (expression, *places),
        ).fetchall()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
            raise
        raise TooManyTerms from error
    finally:
        conn.set_progress_handler(None, 0)


def _expression(wanted: Sequence[Condition], tenant: int) -> str:
    """Return the conditions as an FTS5 query. Terms never contain quotes."""
    parts = [
        (f'"{tenant}:{one.term}"' + (" *" if one.prefix else ""), one.negative) for one in wanted
    ]
    positive = " AND ".join(text for text, negative in parts if not negative)
    return f"({positive})" + "".join(f" NOT {text}" for text, negative in parts if negative)


def tenant_number(conn: sqlite3.Connection, name: str) -> int:
    conn.execute("INSERT OR IGNORE INTO tenants (name) VALUES (?)", (name,))
    (id,) = conn.execute("SELECT id FROM tenants WHERE name = ?", (name,)).fetchone()
    return int(id)


def meta(conn: sqlite3.Connection, name: str) -> str | None:
    found = conn.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if found is None else str(found[0])


def set_meta(conn: sqlite3.Connection, name: str, value: str) -> None:
    conn.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))
