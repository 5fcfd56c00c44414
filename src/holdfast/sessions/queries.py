"""Finds sessions by the filters of `Query`, one page at a time or all matches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from ..errors import InvalidValue
from ..log.catalog import PHASES, Page, Phase, Query, Row
from ..log.catalog.filters import SessionFilters, check_filters
from ..log.codec import check_count
from ..stores.pages import every_row
from .changes import Changes

PAGE = 200  # rows to read at a time


async def find(
    changes: Changes,
    *,
    phases: Phase | Iterable[Phase] | None = None,
    active_after: int | None = None,
    cursor: str | None = None,
    limit: int = 50,
    **filters: Any,
) -> Page[Row]:
    check_filters(SessionFilters, filters, "phases", "active_after", "cursor", "limit")
    wanted = (phases,) if isinstance(phases, str) else phases
    if wanted is not None:
        filters["phases"] = tuple(wanted)
        for phase in filters["phases"]:
            if phase not in PHASES:
                raise InvalidValue(
                    field="phases", problem=f"contains {phase!r}", remedy=f"use {', '.join(PHASES)}"
                )
    if active_after is not None:
        check_count("active_after", active_after, least=0)
        filters["active_from"] = max(active_after + 1, filters.get("active_from") or 0)
    query = Query(tenant=changes.tenant, **filters)
    if wanted is not None and not query.phases:
        check_count("limit", limit, least=1)
        return Page(items=[], total=0 if query.total else None)
    return await changes.store.find(query, cursor=cursor, limit=limit)


async def walk(changes: Changes, **filters: Any) -> AsyncGenerator[Row, None]:
    """Yield every session that matches the filters. The session that was idle longest is first."""
    cursor = None
    while True:
        page = await find(changes, cursor=cursor, newest_first=False, limit=PAGE, **filters)
        for row in page.items:
            yield row
        if (cursor := page.cursor) is None:
            return


def threads(changes: Changes, id: str) -> AsyncGenerator[Row, None]:
    """Yield every thread of a session, oldest first."""
    query = Query(tenant=changes.tenant, session=id, order="created", newest_first=False)
    return every_row(changes.store, query)
