"""Read queries on an SQLite connection: rows, `find`, the inbox, runnable logs, and events by id.

Each kind of query names its index explicitly, so that its query plan does not depend on the number
of sessions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from ...log import catalog
from ...log.catalog import Page, Pending, PendingQuery, Query, Row
from ...log.events import Key
from .. import rules
from ..sql.queries import (
    Where,
    add_conditions,
    find_statement,
    next_cursor,
    pending_page,
    pending_statement,
)
from ..sql.tables import DEAD, LIVE
from .log import row_of
from .transaction import Transaction

KEYS = 300  # logs that one statement looks up; it binds three values for each


def locate(tx: Transaction, tenant: str, id: str) -> list[Key]:
    """Return the logs of a tenant to which an event with this id was appended. If such a log was
    deleted, return the forks that share the event instead.

    The index of ids begins with the id, so one seek finds all logs. It does not slow down appends,
    because the same index is needed to reject ids that a log already has.
    """
    found = tx.conn.execute(
        "WITH RECURSIVE holders (log, seq, live) AS ("
        f" SELECT l.id, e.seq, l.state = {LIVE}"
        " FROM events AS e INDEXED BY events_id CROSS JOIN logs AS l ON l.id = e.log"
        f" WHERE e.id = ? AND (l.tenant = ? OR l.state = {DEAD})"
        " UNION SELECT l.id, h.seq, FALSE FROM holders AS h"
        " CROSS JOIN logs AS l INDEXED BY logs_base ON l.base = h.log AND l.shared >= h.seq"
        " WHERE NOT h.live)"
        " SELECT DISTINCT l.tenant, l.session, l.thread"
        " FROM holders AS h CROSS JOIN logs AS l ON l.id = h.log"
        f" WHERE l.tenant = ? AND l.state = {LIVE}",
        (id, tenant, tenant),
    )
    return sorted(Key(*key) for key in found)


def rows(tx: Transaction, keys: Sequence[Key]) -> list[Row | None]:
    """Return the rows of several logs, in the order of the keys; None for a log that does not
    exist."""
    found: dict[Key, Row] = {}
    for start in range(0, len(keys), KEYS):
        some = keys[start : start + KEYS]
        names = [name for key in some for name in msgspec.structs.astuple(key)]
        for *key, id, doc in tx.conn.execute(_rows_sql(len(some)), names):
            found[Key(*key)] = row_of(tx.conn, id, doc)
    return [found.get(key) for key in keys]


@cache
def _rows_sql(count: int) -> str:
    marks = ", ".join(["(?, ?, ?)"] * count)
    return (
        f"WITH wanted (tenant, session, thread) AS (VALUES {marks})"
        " SELECT l.tenant, l.session, l.thread, l.id, l.doc"
        " FROM wanted AS w CROSS JOIN logs AS l INDEXED BY logs_key"
        " ON l.tenant = w.tenant AND l.session = w.session AND l.thread = w.thread"
    )


def find(tx: Transaction, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page[Row]:
    """Return one page of rows, and the total count if the query asks for it."""
    found = tx.conn.execute(*find_sql(query, cursor, limit + 1)).fetchall()
    total = None
    if query.total:
        source, where = _from(query)
        count = f"SELECT count(*) FROM {source} WHERE {where}"
        (total,) = tx.conn.execute(count, where.values).fetchone()
    rows = [row_of(tx.conn, id, doc) for _, id, doc in found[:limit]]
    return Page(items=rows, cursor=next_cursor(query, found, limit), total=total)


def find_sql(query: Query, cursor: str | None, limit: int) -> tuple[str, list[Any]]:
    """Return the statement for one page, as (SQL, values)."""
    return find_statement(query, *_from(query), cursor, limit)


def _from(query: Query) -> tuple[str, Where]:
    """Return the tables and conditions of a query. If the query has a condition on a map, the table
    of its terms comes first, because it is sorted by `active`. CROSS JOIN keeps that order;
    otherwise SQLite would begin with `logs`."""
    where = Where()
    source = f"logs AS l INDEXED BY {_index(query)}"
    terms = catalog.terms(query)
    if terms and query.session is None:
        first, *terms = terms
        source = "terms AS t CROSS JOIN logs AS l ON l.id = t.log"
        where.add("t.tenant = ? AND t.map = ? AND t.key = ? AND t.term = ?", query.tenant, *first)
    add_conditions(where, query, LIVE)
    for term in terms:
        where.add(
            "EXISTS (SELECT 1 FROM terms AS u WHERE u.tenant = ? AND u.map = ? AND u.key = ?"
            " AND u.term = ? AND u.active = l.active AND u.log = l.id)",
            query.tenant,
            *term,
        )
    return source, where


def _index(query: Query) -> str:
    """Return the name of the index to use for a query."""
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


def pending(
    tx: Transaction, query: PendingQuery, *, cursor: str | None = None, limit: int = 50
) -> Page[Pending]:
    """Return one page of the inbox, oldest first."""
    found = tx.conn.execute(*pending_sql(query, cursor, limit + 1)).fetchall()
    return pending_page(query, found, limit)


def pending_sql(query: PendingQuery, cursor: str | None, limit: int) -> tuple[str, list[Any]]:
    """Return the statement for one page of the inbox, as (SQL, values)."""
    index = "pending_at"
    if query.session is not None or query.user is not None:
        index = "pending_session"
    elif query.assignee is not None:
        index = "pending_assignee"
    source = f"pending INDEXED BY {index}"
    return pending_statement(query, Where(), cursor, limit, source=source, logs="logs", live=LIVE)


def runnable(tx: Transaction, tenant: str, *, agents: Sequence[str], limit: int = 100) -> list[Key]:
    """Return logs of these agents that need a driver and have no live lease."""
    conn, now = tx.conn, tx.clock()
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
    """Return the statement for runnable logs, as (SQL, values). With `ahead`, it finds logs that
    were due before the clock was set back (see `catalog.is_due`)."""
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


def due_tenants(
    tx: Transaction, *, agents: Sequence[str], after: str = "", limit: int = 100
) -> list[str]:
    """Return the names of the tenants, after the name `after`, with due logs of these agents."""
    if not agents:
        return []
    found = tx.conn.execute(*due_tenants_sql(tx.clock(), agents, after, limit))
    return [tenant for (tenant,) in found]


def due_tenants_sql(
    now: int, agents: Sequence[str], after: str, limit: int
) -> tuple[str, list[Any]]:
    """Return the statement for tenants with due logs, as (SQL, values). It steps from tenant to
    tenant, and looks up one due log of each, so that logs which wait for later cost nothing."""
    following = (
        "SELECT min(tenant) FROM logs INDEXED BY logs_wake WHERE wake IS NOT NULL AND tenant"
    )
    marks = ",".join("?" * len(agents))
    logs = f"FROM logs AS l INDEXED BY logs_wake WHERE l.tenant = t.tenant AND agent IN ({marks})"
    late = "wake > ? AND active > ? AND wake < (active + 1) * 1000"
    ahead = catalog.ahead(now)
    return (
        f"WITH RECURSIVE t (tenant) AS ({following} > ? UNION ALL"
        f" SELECT ({following} > t.tenant) FROM t WHERE t.tenant IS NOT NULL)"
        " SELECT tenant FROM t WHERE tenant IS NOT NULL AND ("
        f"EXISTS (SELECT 1 {logs} AND wake <= ? AND state = {LIVE})"
        " OR (EXISTS (SELECT 1 FROM logs AS l INDEXED BY logs_active"
        " WHERE l.tenant = t.tenant AND thread = 'main' AND active > ?)"
        f" AND EXISTS (SELECT 1 {logs} AND {late} AND state = {LIVE}))) LIMIT ?",
        [after, *agents, now, ahead, *agents, now, ahead, limit],
    )


def _was_ahead(conn: sqlite3.Connection, now: int, tenant: str) -> bool:
    """Return whether a session was active later than `now`, which means that the clock was set
    back."""
    found = conn.execute(
        "SELECT 1 FROM logs INDEXED BY logs_active"
        " WHERE tenant = ? AND thread = 'main' AND active > ? LIMIT 1",
        (tenant, catalog.ahead(now)),
    ).fetchone()
    return found is not None
