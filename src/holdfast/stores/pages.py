"""Helpers that read rows of a store: one row that must exist, and all pages of a query."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ..errors import SessionNotFound
from ..log.catalog import Query, Row
from ..log.events import Key
from .port import Store


async def existing_row(store: Store, key: Key) -> Row:
    """Return the row of a thread. Raises `SessionNotFound` if it does not exist."""
    row = await store.row(key)
    if row is None:
        raise SessionNotFound(tenant=key.tenant, session=key.session, thread=key.thread)
    return row


async def every_row(store: Store, query: Query, *, batch: int = 500) -> AsyncGenerator[Row, None]:
    """Yield all rows that match a query, read `batch` at a time."""
    cursor: str | None = None
    while True:
        page = await store.find(query, cursor=cursor, limit=batch)
        for row in page.items:
            yield row
        if (cursor := page.cursor) is None:
            return
