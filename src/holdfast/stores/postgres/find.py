"""Queries: find, the inbox, what is runnable. Each is one statement that an index answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import InvalidValue
from ...log import catalog
from ...log.catalog import Page, Pending, PendingQuery, Query, Row
from ...log.events import Key
from .. import rules
from .columns import digest
from .database import Link
from .schema import LIVE

_item = msgspec.json.Decoder(Pending).decode
_row = msgspec.json.Decoder(Row).decode


class Where:
    """Conditions that grow, and the values bound in them."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._parts: list[str] = []

    def add(self, condition: str, *values: Any) -> None:
        """A condition, with a `?` for each value."""
        for value in values:
            self.values.append(value)
            condition = condition.replace("?", f"${len(self.values)}", 1)
        self._parts.append(condition)

    def bound(self, value: Any) -> str:
        self.values.append(value)
        return f"${len(self.values)}"

    def __str__(self) -> str:
        return " AND ".join(self._parts)


async def find(link: Link, query: Query, cursor: str | None, limit: int) -> Page[Row]:
    """One page of rows, and the number of all if the query asks for it."""
    sql, values = find_sql(query, cursor, limit + 1)
    found = await link.rows(sql, *values)
    more = None
    if len(found) > limit:
        value, id, _ = found[limit - 1]
        more = catalog.make_cursor(query, value, id)
    total = None
    if query.total:
        source, where = _from(query)
        total = await link.value(f"SELECT count(*) FROM {source} WHERE {where}", *where.values)
    return Page(items=[_row(doc) for _, _, doc in found[:limit]], cursor=more, total=total)


def find_sql(query: Query, cursor: str | None, limit: int) -> tuple[str, list[Any]]:
    """The statement for one page, as (SQL, values); it selects (place, id, doc)."""
    source, where = _from(query)
    by_term = "hf.terms" in source and query.order == "active"
    place, id = ("t.active", "t.log") if by_term else (f"l.{query.order}", "l.id")
    if cursor is not None:
        sign = "<" if query.newest_first else ">"
        where.add(f"({place}, {id}) {sign} (?, ?)", *_place(query, cursor))
    way = "DESC" if query.newest_first else "ASC"
    return (
        f"SELECT {place}, {id}, l.doc FROM {source} WHERE {where}"
        f" ORDER BY {place} {way}, {id} {way} LIMIT {where.bound(limit)}",
        where.values,
    )


def _from(query: Query) -> tuple[str, Where]:
    """Where to look and for what. A condition on a map, if there is one, leads: its entries
    are in order of `active`."""
    where = Where()
    source = "hf.logs AS l"
    terms = catalog.terms(query)
    if terms and query.session is None:
        first, *terms = terms
        source = "hf.terms AS t JOIN hf.logs AS l ON l.id = t.log"
        where.add("t.tenant = ? AND t.term = ?", query.tenant, digest(first))
    _add(query, where)
    for term in terms:
        where.add(
            "EXISTS (SELECT 1 FROM hf.terms AS u WHERE u.tenant = l.tenant AND u.term = ?"
            " AND u.active = l.active AND u.log = l.id)",
            digest(term),
        )
    return source, where


def _add(query: Query, where: Where) -> None:
    where.add(f"l.state = {LIVE} AND l.tenant = ?", query.tenant)
    if query.session is None:
        where.add("l.thread = 'main'")
    for name in ("session", "user", "workspace", "agent", "run"):
        if (value := getattr(query, name)) is not None:
            where.add(f'l."{name}" = ?', value)
    if query.phases:
        where.add("l.phase = ANY (?)", list(query.phases))
    for name, sign, value in (
        ("created", ">=", query.created_from),
        ("created", "<", query.created_until),
        ("active", ">=", query.active_from),
        ("active", "<", query.active_until),
        ("stale_at", "<", query.stale_until),
    ):
        if value is not None:
            where.add(f"l.{name} {sign} ?", value)


def _place(query: Query, cursor: str) -> tuple[int, int]:
    value, tie = catalog.read_cursor(query, cursor)
    if isinstance(tie, str):
        raise _foreign()
    return value, tie


def _foreign() -> InvalidValue:
    return InvalidValue(
        field="cursor", problem="is of another store", remedy="start from the first page"
    )


async def pending(link: Link, query: PendingQuery, cursor: str | None, limit: int) -> Page[Pending]:
    """One page of the inbox, oldest first."""
    sql, values = pending_sql(query, cursor, limit + 1)
    found = await link.rows(sql, *values)
    more = None
    if len(found) > limit:
        at, log, seq, _ = found[limit - 1]
        more = catalog.make_cursor(query, at, f"{log}/{seq}")
    return Page(items=[_item(item) for _, _, _, item in found[:limit]], cursor=more)


def pending_sql(query: PendingQuery, cursor: str | None, limit: int) -> tuple[str, list[Any]]:
    """The statement for one page of the inbox, as (SQL, values)."""
    where = Where()
    where.add("tenant = ?", query.tenant)
    for name in ("session", "what", "assignee"):
        if (value := getattr(query, name)) is not None:
            where.add(f"{name} = ?", value)
    if query.user is not None:
        where.add(
            'session IN (SELECT session FROM hf.logs WHERE tenant = ? AND "user" = ?'
            f" AND thread = 'main' AND state = {LIVE})",
            query.tenant,
            query.user,
        )
    if cursor is not None:
        where.add("(at, log, seq) > (?, ?, ?)", *_pending_place(query, cursor))
    return (
        f"SELECT at, log, seq, item FROM hf.pending WHERE {where}"
        f" ORDER BY at, log, seq LIMIT {where.bound(limit)}",
        where.values,
    )


def _pending_place(query: PendingQuery, cursor: str) -> list[int]:
    at, tie = catalog.read_cursor(query, cursor)
    try:
        log, seq = (int(part) for part in str(tie).split("/"))
        if not all(0 <= number < 1 << 63 for number in (log, seq)):
            raise ValueError("a number that no cursor of ours has")
        return [at, log, seq]
    except ValueError as error:
        raise _foreign() from error


# Each agent's logs are in order by the index; so few of each are read, whatever their number.
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
# What was due before the clock was set back: `catalog.is_due`.
LATE = _RUNNABLE.format(due="l.wake > $3 AND l.active > $7 AND l.wake < (l.active + 1) * 1000")
WAS_AHEAD = (
    "SELECT 1 FROM hf.logs WHERE tenant = $1 AND thread = 'main' AND active > $2"
    " ORDER BY active, id LIMIT 1"
)


async def runnable(
    link: Link, now: int, tenant: str, agents: Sequence[str], limit: int
) -> list[Key]:
    """Logs of these agents that want a driver and have no live lease."""
    values = [tenant, sorted(set(agents)), *rules.live_leases(now), limit]
    found = await link.rows(RUNNABLE, *values)
    ahead = catalog.ahead(now)
    if await link.value(WAS_AHEAD, tenant, ahead):
        found = sorted([*found, *await link.rows(LATE, *values, ahead)], key=tuple)[:limit]
    return [Key(tenant, session, thread) for _, _, session, thread in found]
