"""Queries on a connection: find, the inbox, what is runnable.

Each kind of query has its index named outright, so that its plan is the same at a
thousand sessions and at a hundred thousand.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import InvalidValue
from ...log import catalog
from ...log.catalog import Page, Pending, PendingQuery, Query, Row
from ...log.events import Key
from .. import rules
from .log import row_of
from .schema import LIVE

_item = msgspec.json.Decoder(Pending).decode


def find(conn: sqlite3.Connection, query: Query, cursor: str | None, limit: int) -> Page[Row]:
    """One page of rows, and the number of all if the query asks for it."""
    sql, values = find_sql(query, cursor, limit + 1)
    found = conn.execute(sql, values).fetchall()
    more = None
    if len(found) > limit:
        value, id, _ = found[limit - 1]
        more = catalog.make_cursor(query, value, id)
    total = None
    if query.total:
        source, where, values = _from(query)
        (total,) = conn.execute(f"SELECT count(*) FROM {source} WHERE {where}", values).fetchone()
    rows = [row_of(conn, id, doc) for _, id, doc in found[:limit]]
    return Page(items=rows, cursor=more, total=total)


def find_sql(query: Query, cursor: str | None, limit: int) -> tuple[str, list[Any]]:
    """The statement for one page, as (SQL, values); it selects (place, id, doc)."""
    source, where, values = _from(query)
    by_term = source.startswith("terms") and query.order == "active"
    place, id = ("t.active", "t.log") if by_term else (f"logs.{query.order}", "logs.id")
    if cursor is not None:
        sign = "<" if query.newest_first else ">"
        where += f" AND ({place}, {id}) {sign} (?, ?)"
        values += catalog.read_cursor(query, cursor)
    way = "DESC" if query.newest_first else "ASC"
    return (
        f"SELECT {place}, {id}, logs.doc FROM {source} WHERE {where}"
        f" ORDER BY {place} {way}, {id} {way} LIMIT ?",
        [*values, limit],
    )


def _from(query: Query) -> tuple[str, str, list[Any]]:
    """Where to look and for what. A condition on a map, if there is one, leads: its entries
    are in order of `active`. CROSS JOIN, because SQLite would begin with `logs`."""
    where, values = _where(query)
    terms = catalog.terms(query)
    if not terms or query.session is not None:
        source = f"logs INDEXED BY {_index(query)}"
    else:
        (map, key, term), *terms = terms
        source = "terms AS t CROSS JOIN logs ON logs.id = t.log"
        where = f"t.tenant = ? AND t.map = ? AND t.key = ? AND t.term = ? AND {where}"
        values = [query.tenant, map, key, term, *values]
    for map, key, term in terms:
        where += (
            " AND EXISTS (SELECT 1 FROM terms AS u WHERE u.tenant = ? AND u.map = ? AND u.key = ?"
            " AND u.term = ? AND u.active = logs.active AND u.log = logs.id)"
        )
        values += [query.tenant, map, key, term]
    return source, where, values


def _index(query: Query) -> str:
    """The index that a query goes by."""
    if query.session is not None:
        index = "logs_threads" if query.order == "active" else "logs_key"
    elif query.stale_until is not None:
        index = "logs_stale"
    elif query.user is not None:
        index = "logs_user"
    elif query.workspace is not None:
        index = "logs_workspace"
    elif query.agent is not None and query.order == "active":
        index = "logs_agent"
    else:
        index = "logs_active" if query.order == "active" else "logs_created"
    return index


def _where(query: Query) -> tuple[str, list[Any]]:
    parts = [f"logs.state = {LIVE}", "logs.tenant = ?"]
    values: list[Any] = [query.tenant]
    if query.session is None:
        parts.append("logs.thread = 'main'")
    for name in ("session", "user", "workspace", "agent", "run"):
        if (value := getattr(query, name)) is not None:
            parts.append(f"logs.{name} = ?")
            values.append(value)
    if query.phases:
        parts.append(f"logs.phase IN ({','.join('?' * len(query.phases))})")
        values.extend(query.phases)
    for name, sign, value in (
        ("created", ">=", query.created_from),
        ("created", "<", query.created_until),
        ("active", ">=", query.active_from),
        ("active", "<", query.active_until),
        ("stale_at", "<", query.stale_until),
    ):
        if value is not None:
            parts.append(f"logs.{name} {sign} ?")
            values.append(value)
    return " AND ".join(parts), values


def pending(
    conn: sqlite3.Connection, query: PendingQuery, cursor: str | None, limit: int
) -> Page[Pending]:
    """One page of the inbox, oldest first."""
    sql, values = pending_sql(query, cursor, limit + 1)
    found = conn.execute(sql, values).fetchall()
    more = None
    if len(found) > limit:
        at, log, seq, _ = found[limit - 1]
        more = catalog.make_cursor(query, at, f"{log}/{seq}")
    return Page(items=[_item(item) for _, _, _, item in found[:limit]], cursor=more)


def pending_sql(query: PendingQuery, cursor: str | None, limit: int) -> tuple[str, list[Any]]:
    """The statement for one page of the inbox, as (SQL, values)."""
    parts = ["tenant = ?"]
    values: list[Any] = [query.tenant]
    for name in ("session", "what", "assignee"):
        if (value := getattr(query, name)) is not None:
            parts.append(f"{name} = ?")
            values.append(value)
    if query.user is not None:
        parts.append(
            "session IN (SELECT session FROM logs WHERE tenant = ? AND user = ?"
            f" AND thread = 'main' AND state = {LIVE})"
        )
        values += [query.tenant, query.user]
    if cursor is not None:
        parts.append("(at, log, seq) > (?, ?, ?)")
        values += _pending_place(query, cursor)
    index = "pending_at"
    if query.session is not None or query.user is not None:
        index = "pending_session"
    elif query.assignee is not None:
        index = "pending_assignee"
    return (
        f"SELECT at, log, seq, item FROM pending INDEXED BY {index} WHERE {' AND '.join(parts)}"
        " ORDER BY at, log, seq LIMIT ?",
        [*values, limit],
    )


def _pending_place(query: PendingQuery, cursor: str) -> list[int]:
    at, tie = catalog.read_cursor(query, cursor)
    try:
        log, seq = str(tie).split("/")
        return [at, int(log), int(seq)]
    except ValueError as error:
        raise InvalidValue(
            field="cursor", problem="is of another store", remedy="start from the first page"
        ) from error


def runnable(
    conn: sqlite3.Connection, now: int, tenant: str, agents: Sequence[str], limit: int
) -> list[Key]:
    """Logs of these agents that want a driver and have no live lease."""
    if not agents:
        return []
    found = conn.execute(*runnable_sql(now, tenant, agents, limit)).fetchall()
    if _was_ahead(conn, now, tenant):
        late = conn.execute(*runnable_sql(now, tenant, agents, limit, ahead=True))
        found = sorted([*found, *late])[:limit]
    return [Key(tenant, session, thread) for _, _, session, thread in found]


def runnable_sql(
    now: int, tenant: str, agents: Sequence[str], limit: int, *, ahead: bool = False
) -> tuple[str, list[Any]]:
    """The statement for what is runnable, as (SQL, values); or for what was due before the clock
    was set back (`catalog.is_due`)."""
    marks = ",".join("?" * len(agents))
    due, values = "wake <= ?", [now]
    if ahead:
        due = "wake > ? AND active > ? AND wake < (active + 1) * 1000"
        values.append(catalog.ahead(now))
    return (
        "SELECT wake, id, session, thread FROM logs INDEXED BY logs_wake"
        f" WHERE tenant = ? AND agent IN ({marks}) AND {due}"
        " AND (owner IS NULL OR until <= ? OR until > ? OR renewed > ?)"
        f" AND state = {LIVE} ORDER BY wake, id LIMIT ?",
        [tenant, *agents, *values, *rules.live_leases(now), limit],
    )


def _was_ahead(conn: sqlite3.Connection, now: int, tenant: str) -> bool:
    """Whether a session was active later than now, so that the clock was set back since."""
    found = conn.execute(
        "SELECT 1 FROM logs INDEXED BY logs_active"
        " WHERE tenant = ? AND thread = 'main' AND active > ? LIMIT 1",
        (tenant, catalog.ahead(now)),
    ).fetchone()
    return found is not None
