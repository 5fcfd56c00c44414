"""Places on a server that are emptied and used again, for many short tests.

To make a schema or a database takes longer than most of those tests.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import defaultdict
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

from . import shared
from .faults import schema_of

KEPT = "meta"  # the table or collection of versions, which the store wrote when it was made

_free: dict[str, list[str]] = defaultdict(list)
_numbers = itertools.count()


@contextlib.asynccontextmanager
async def empty(kind: str) -> AsyncGenerator[str, None]:
    """The URL of a store that is empty. Close the store inside; after an error the place is not
    used again."""
    if not (free := _free[kind]):
        free.append(shared.url(kind, f"recycled {os.getpid()} {next(_numbers)}"))
    url = free.pop()
    shared.used.discard(url)  # it is ours to remove
    try:
        yield url
        await _clear(url)
    except BaseException:
        shared.used.add(url)
        raise
    free.append(url)


async def _clear(url: str) -> None:
    if url.startswith("mongodb"):
        await _clear_database(url)
    else:
        await _clear_schema(url)


async def _clear_schema(url: str) -> None:
    import asyncpg

    schema = schema_of(url)
    connection = await asyncpg.connect(url.partition("?")[0], statement_cache_size=0)
    try:
        async with connection.transaction():
            tables = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename <> $2",
                schema,
                KEPT,
            )
            await connection.execute(
                ";".join(f"DELETE FROM {schema}.{table['tablename']}" for table in tables)
            )
    finally:
        await connection.close()


async def _clear_database(url: str) -> None:
    from pymongo import AsyncMongoClient

    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    async with client:
        database = client[urlsplit(url).path.lstrip("/")]
        for name in await database.list_collection_names():
            if name != KEPT:
                await database[name].delete_many({})
