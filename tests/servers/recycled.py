"""Places on a server that are emptied and used again, for many short tests.

To make a schema or a database takes longer than most of those tests. They are emptied over one
connection that each process keeps to each server, in a thread of its own: the event loop of a test
ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from . import shared
from .faults import schema_of

# The tables or collections that the store filled when it was made.
KEPT = ["meta", "search_meta", "search_epochs"]

_free: dict[str, list[str]] = defaultdict(list)
_numbers = itertools.count()
_clients: dict[str, Any] = {}  # by the server's URL; used in the cleaner's loop alone


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
        clear = _clear_database if url.startswith("mongodb") else _clear_schema
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(clear(url), _loop()))
    except BaseException:
        shared.used.add(url)
        raise
    free.append(url)


def finish() -> None:
    """Close the connections."""
    if _clients:
        asyncio.run_coroutine_threadsafe(_close(), _loop()).result()


async def _clear_schema(url: str) -> None:
    schema = schema_of(url)
    connection = await _client(url.partition("?")[0], _connect_postgres)
    async with connection.transaction():
        tables = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace($1)"
            " AND relkind = 'r' AND relname <> ALL ($2)",
            schema,
            KEPT,
        )
        await connection.execute(
            ";".join(f"DELETE FROM {schema}.{table['relname']}" for table in tables)
            + f"; UPDATE {schema}.search_meta SET value = '?' WHERE name = 'mark'"
        )


async def _clear_database(url: str) -> None:
    parts = urlsplit(url)
    client = await _client(parts._replace(path="/").geturl(), _connect_mongodb)
    database = client[parts.path.lstrip("/")]
    for name in await database.list_collection_names():
        if name not in KEPT:
            await database[name].delete_many({})


async def _client(url: str, connect: Callable[[str], Awaitable[Any]]) -> Any:
    if url not in _clients:
        _clients[url] = await connect(url)
    return _clients[url]


async def _connect_postgres(url: str) -> Any:
    import asyncpg

    return await asyncpg.connect(url, statement_cache_size=0)


async def _connect_mongodb(url: str) -> Any:
    from pymongo import AsyncMongoClient

    return AsyncMongoClient(url)


async def _close() -> None:
    while _clients:
        await _clients.popitem()[1].close()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="cleaner", daemon=True).start()
    return loop
