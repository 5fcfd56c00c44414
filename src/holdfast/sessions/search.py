"""Full-text search in the sessions of a tenant: creates a `SearchQuery` from the arguments."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import InvalidValue
from ..log.catalog import PHASES, Phase, SearchQuery
from ..values.search import SearchPage
from .changes import Changes


async def search(
    changes: Changes,
    text: str,
    *,
    session: str | None,
    user: str | None,
    agent: str | None,
    phase: Phase | Iterable[Phase] | None,
    kind: str | None,
    since: int | None,
    until: int | None,
    labels: Iterable[str],
    limit: int,
    cursor: str | None,
) -> SearchPage:
    """Search the sessions of a tenant. Returns one page of matches."""
    phases = (phase,) if isinstance(phase, str) else tuple(phase or ())
    for one in phases:
        if one not in PHASES:
            raise InvalidValue(
                field="phase", problem=f"is {one!r}", remedy=f"use {', '.join(PHASES)}"
            )
    query = SearchQuery(
        text=text,
        tenant=changes.tenant,
        session=session,
        user=user,
        agent=agent,
        phases=phases,
        kind=kind,
        since=since,
        until=until,
        labels=(labels,) if isinstance(labels, str) else tuple(labels),
    )
    return await changes.store.search(query, cursor=cursor, limit=limit)
