"""Queries: rows by key, logs by event id, `find`, the inbox, and runnable logs. Each is one SQL
statement that uses an index."""

from __future__ import annotations

from collections.abc import Sequence

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
from .columns import digest
from .database import Link
from .tables import PostgresTables

_row = msgspec.json.Decoder(Row).decode


async def rows(link: Link, keys: Sequence[Key]) -> list[Row | None]:
    """Return the rows of these logs, in the order of the keys."""
    found = await link.rows(
        "SELECT l.doc FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY"
        " AS k (tenant, session, thread, place) LEFT JOIN hf.logs AS l"
        " ON l.tenant = k.tenant AND l.session = k.session AND l.thread = k.thread"
        " ORDER BY k.place",
        [key.tenant for key in keys],
        [key.session for key in keys],
        [key.thread for key in keys],
    )
    return [None if doc is None else _row(doc) for (doc,) in found]


# `holder` is a log of the tenant, or one from which it was forked and that was deleted since.
_LOCATE = f"""
WITH RECURSIVE holder AS (
    SELECT l.session, l.thread, l.id, l.base, l.shared, 9223372036854775807 AS upto, true AS holds
        FROM hf.logs AS l WHERE l.tenant = $1
    UNION ALL
    SELECT h.session, h.thread, l.id, l.base, l.shared, h.shared, l.state = {DEAD}
        FROM holder AS h JOIN hf.logs AS l ON l.id = h.base
) SELECT h.session, h.thread FROM holder AS h CROSS JOIN LATERAL (
    SELECT e.id, e.seq FROM hf.events AS e
    WHERE e.log = h.id AND e.id >= $2 ORDER BY e.id LIMIT 1
) AS e WHERE h.holds AND e.id = $2 AND e.seq <= h.upto
"""


async def locate(link: Link, tenant: str, id: str) -> list[Key]:
    """Return the logs of a tenant to which the event with this id was appended.

    The query needs one seek in the index (log, id) for each log of the tenant, which takes about
    1.5 ms per 1,000 logs. An index that begins with the id would find the event at once, but slow
    down appends: one more index adds 18 to 24 % to the write-ahead log of each append, and 19 % to
    the server's CPU time of an append of 100 events. If it replaced the current index, ids that are
    not ordered by time (idempotency keys, tool calls) would spread each append over the whole
    index. In the current index, the ids of an append are next to each other.
    """
    found = await link.rows(_LOCATE, tenant, id)
    return sorted(Key(tenant, session, thread) for session, thread in found)


async def find(
    link: Link, query: Query, *, cursor: str | None = None, limit: int = 50
) -> Page[Row]:
    """Return one page of rows, and the total count if the query asks for it."""
    sql, values = find_statement(query, *_from(query), cursor, limit + 1)
    found = await link.rows(sql, *values)
    total = None
    if query.total:
        source, where = _from(query)
        total = await link.value(f"SELECT count(*) FROM {source} WHERE {where}", *where.values)
    rows = [_row(doc) for _, _, doc in found[:limit]]
    return Page(items=rows, cursor=next_cursor(query, found, limit), total=total)


def _from(query: Query) -> tuple[str, Where]:
    """Return the FROM and WHERE clauses of a query. If there is a condition on a map, it comes
    first, because its entries are sorted by `active`."""
    where = Where(numbered=True)
    source = "hf.logs AS l"
    terms = catalog.terms(query)
    if terms and query.session is None:
        first, *terms = terms
        source = "hf.terms AS t JOIN hf.logs AS l ON l.id = t.log"
        where.add("t.tenant = ? AND t.term = ?", query.tenant, digest(first))
    add_conditions(where, query, LIVE)
    for term in terms:
        where.add(
            "EXISTS (SELECT 1 FROM hf.terms AS u WHERE u.tenant = l.tenant AND u.term = ?"
            " AND u.active = l.active AND u.log = l.id)",
            digest(term),
        )
    return source, where


async def pending(
    link: Link, query: PendingQuery, *, cursor: str | None = None, limit: int = 50
) -> Page[Pending]:
    """Return one page of the inbox, oldest first."""
    where = Where(numbered=True)
    sql, values = pending_statement(
        query, where, cursor, limit + 1, source="hf.pending", logs="hf.logs", live=LIVE
    )
    return pending_page(query, await link.rows(sql, *values), limit)


# The index sorts the logs of each agent, so only a few of each are read, whatever their number.
_RUNNABLE = f"""
SELECT r.wake, r.id, r.session, r.thread FROM unnest($2::text[]) AS a (agent) CROSS JOIN LATERAL (
    SELECT l.wake, l.id, l.session, l.thread FROM hf.logs AS l
    WHERE l.tenant = $1 AND l.agent = a.agent AND l.wake IS NOT NULL AND {{due}}
        AND (l.owner IS NULL OR l.until <= $3 OR l.until > $4 OR l.renewed > $5)
        AND l.state = {LIVE}
    ORDER BY l.wake, l.id LIMIT $6
) AS r ORDER BY r.wake, r.id LIMIT $6
"""
RUNNABLE = _RUNNABLE.format(due="l.wake <= $3")
# Logs that were due before the clock was set back: `catalog.is_due`.
LATE = _RUNNABLE.format(due="l.wake > $3 AND l.active > $7 AND l.wake < (l.active + 1) * 1000")
WAS_AHEAD = (
    "SELECT 1 FROM hf.logs WHERE tenant = $1 AND thread = 'main' AND active > $2"
    " ORDER BY active, id LIMIT 1"
)


async def runnable(
    tables: PostgresTables, tenant: str, *, agents: Sequence[str], limit: int = 100
) -> list[Key]:
    """Return logs of these agents that need a driver and have no live lease."""
    link, now = tables.link, await tables.now()
    values = [tenant, sorted(set(agents)), *rules.live_leases(now), limit]
    found = await link.rows(RUNNABLE, *values)
    ahead = catalog.ahead(now)
    if await link.value(WAS_AHEAD, tenant, ahead):
        found = sorted([*found, *await link.rows(LATE, *values, ahead)], key=tuple)[:limit]
    return [Key(tenant, session, thread) for _, _, session, thread in found]


DUE_TENANTS = f"""
SELECT DISTINCT l.tenant COLLATE "C" FROM hf.logs AS l
WHERE l.tenant COLLATE "C" > $1 AND l.agent = ANY($2::text[]) AND l.wake IS NOT NULL
    AND l.state = {LIVE} AND (l.wake <= $3 OR (l.active > $4 AND l.wake < (l.active + 1) * 1000))
ORDER BY 1 LIMIT $5
"""


async def due_tenants(
    tables: PostgresTables, *, agents: Sequence[str], after: str = "", limit: int = 100
) -> list[str]:
    """Return the names of the tenants, after the name `after`, with due logs of these agents."""
    now = await tables.now()
    values = [after, sorted(set(agents)), now, catalog.ahead(now), limit]
    return [tenant for (tenant,) in await tables.link.rows(DUE_TENANTS, *values)]
