"""Queries: `find`, the inbox, and runnable logs. Each is one statement that uses an index."""

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
from ..sql.tables import LIVE
from .columns import digest
from .database import Link
from .tables import PostgresTables

_row = msgspec.json.Decoder(Row).decode


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
    """Return the tables and conditions of a query. A condition on a map, if there is one, comes
    first: its entries are sorted by `active`."""
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
