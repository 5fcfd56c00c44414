"""The threads of a session, as its store lists them: no agent needs to serve it. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..log.catalog import Page, Query, Row
from ..log.events import Key
from ..stores.port import Store


async def threads_of(
    store: Store,
    key: Key,
    agent: str | None,
    *,
    title: str | None = None,
    label: str | None = None,
    settings: Mapping[str, Any] | None = None,
    parent: str | None = None,
    forks: bool | None = None,
    subagents: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Row]:
    """Return the threads of the session of `key` that match all filters, most recently active
    first. `agent` is the key of the session's agent: threads of other agents are sub-agents. A page
    may have fewer than `limit` items; only the last page has no cursor."""
    query = Query(
        tenant=key.tenant, session=key.session, label=label, metadata=dict(settings or {})
    )
    while True:
        page = await store.find(query, cursor=cursor, limit=limit)
        found = [
            row
            for row in page.items
            if _answers(row, title, parent, forks) and (subagents or row.agent in (None, agent))
        ]
        if found or page.cursor is None:
            return Page(items=found, cursor=page.cursor)
        cursor = page.cursor


def _answers(row: Row, title: str | None, parent: str | None, forks: bool | None) -> bool:
    if title is not None and title.casefold() not in (row.title or "").casefold():
        return False
    if parent is not None and (row.parent is None or row.parent.thread != parent):
        return False
    return forks is None or forks == (row.parent is not None and row.parent.at > 0)
