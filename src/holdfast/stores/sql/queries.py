"""The SQL of `find` and `pending`, shared by SQLite and PostgreSQL.

The tables have the same columns in both databases. The differences are parameters: the placeholder
style, and the tables to search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import InvalidValue
from ...log import catalog
from ...log.catalog import Page, Pending, PendingQuery, Query

LARGEST = 1 << 63  # the smallest number that is too large for an integer column

_item = msgspec.json.Decoder(Pending).decode


class Where:
    """Conditions joined by AND, and the values bound in them. The placeholders are `$1`, `$2` and
    so on if `numbered` is true, and `?` otherwise."""

    def __init__(self, *, numbered: bool = False) -> None:
        self.values: list[Any] = []
        self._numbered = numbered
        self._parts: list[str] = []

    def add(self, condition: str, *values: Any) -> None:
        """Add a condition, which contains one `?` for each value."""
        for value in values:
            mark = self.bound(value)
            if self._numbered:
                condition = condition.replace("?", mark, 1)
        self._parts.append(condition)

    def bound(self, value: Any) -> str:
        """Add a value to the bound values, and return its placeholder."""
        self.values.append(value)
        return f"${len(self.values)}" if self._numbered else "?"

    def __str__(self) -> str:
        return " AND ".join(self._parts)


def add_conditions(where: Where, query: Query, live: int) -> None:
    """Add the conditions of a query that concern columns of the table `logs`, which has the alias
    `l`."""
    where.add(f"l.state = {live} AND l.tenant = ?", query.tenant)
    if query.session is None:
        where.add("l.thread = 'main'")
    for name in ("session", "user", "workspace", "agent", "run"):
        if (value := getattr(query, name)) is not None:
            where.add(f'l."{name}" = ?', value)
    if query.phases:
        where.add(f"l.phase IN ({', '.join('?' * len(query.phases))})", *query.phases)
    for name, sign, value in (
        ("created", ">=", query.created_from),
        ("created", "<", query.created_until),
        ("active", ">=", query.active_from),
        ("active", "<", query.active_until),
        ("stale_at", "<", query.stale_until),
    ):
        if value is not None:
            where.add(f"l.{name} {sign} ?", value)


def find_statement(
    query: Query, source: str, where: Where, cursor: str | None, limit: int
) -> tuple[str, list[Any]]:
    """Return the statement for one page, as (SQL, values). The statement selects (place, id, doc),
    where `place` is the sort key. If `source` includes the table of terms (alias `t`), rows are
    sorted by its columns."""
    by_term = " AS t " in source and query.order == "active"
    place, id = ("t.active", "t.log") if by_term else (f"l.{query.order}", "l.id")
    if cursor is not None:
        value, tie = catalog.read_cursor(query, cursor)
        if isinstance(tie, str):
            raise _of_another_store()
        where.add(f"({place}, {id}) {'<' if query.newest_first else '>'} (?, ?)", value, tie)
    way = "DESC" if query.newest_first else "ASC"
    return (
        f"SELECT {place}, {id}, l.doc FROM {source} WHERE {where}"
        f" ORDER BY {place} {way}, {id} {way} LIMIT {where.bound(limit)}",
        where.values,
    )


def next_cursor(query: Query, found: Sequence[Any], limit: int) -> str | None:
    """Return the cursor after a page of (place, id, doc), if there are more than `limit` rows."""
    if len(found) <= limit:
        return None
    value, id, _ = found[limit - 1]
    return catalog.make_cursor(query, value, id)


def pending_statement(
    query: PendingQuery,
    where: Where,
    cursor: str | None,
    limit: int,
    *,
    source: str,
    logs: str,
    live: int,
) -> tuple[str, list[Any]]:
    """Return the statement for one page of the inbox, as (SQL, values)."""
    where.add("tenant = ?", query.tenant)
    for name in ("session", "what", "assignee"):
        if (value := getattr(query, name)) is not None:
            where.add(f"{name} = ?", value)
    if query.user is not None:
        where.add(
            f'session IN (SELECT session FROM {logs} WHERE tenant = ? AND "user" = ?'
            f" AND thread = 'main' AND state = {live})",
            query.tenant,
            query.user,
        )
    if cursor is not None:
        where.add("(at, log, seq) > (?, ?, ?)", *_pending_place(query, cursor))
    return (
        f"SELECT at, log, seq, item FROM {source} WHERE {where}"
        f" ORDER BY at, log, seq LIMIT {where.bound(limit)}",
        where.values,
    )


def _pending_place(query: PendingQuery, cursor: str) -> tuple[int, int, int]:
    at, tie = catalog.read_cursor(query, cursor)
    try:
        log, seq = (int(part) for part in str(tie).split("/"))
    except ValueError as error:
        raise _of_another_store() from error
    if not (0 <= log < LARGEST and 0 <= seq < LARGEST):
        raise _of_another_store()
    return at, log, seq


def pending_page(query: PendingQuery, found: Sequence[Any], limit: int) -> Page[Pending]:
    """Build a page of the inbox from the rows that its statement returned."""
    more = None
    if len(found) > limit:
        at, log, seq, _ = found[limit - 1]
        more = catalog.make_cursor(query, at, f"{log}/{seq}")
    return Page(items=[_item(item) for _, _, _, item in found[:limit]], cursor=more)


def _of_another_store() -> InvalidValue:
    return InvalidValue(
        field="cursor", problem="belongs to another store", remedy="start from the first page"
    )
