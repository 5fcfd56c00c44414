"""Queries over all pages of a store."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ..log.catalog import Query, Row
from .port import Store


async def every_row(store: Store, query: Query, *, batch: int = 500) -> AsyncGenerator[Row, None]:
    """All rows that match a query, read `batch` at a time."""
    cursor: str | None = None
    while True:
        page = await store.find(query, cursor=cursor, limit=batch)
        for row in page.items:
            yield row
        if (cursor := page.cursor) is None:
            return
