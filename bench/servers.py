"""The databases that are measured: real servers with everything on that makes a write safe.

PostgreSQL and MongoDB come from the wheels that the tests use, as private processes whose data
are in `TMPDIR`; or they are one's own, named by the environment as for the tests. One that
cannot be started, or does not wait for its disk, fails the workload that needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct
from tests.servers import mongo, postgres
from tests.servers.private import private
from tests.servers.process import ServerFailed
from tests.servers.shared import OWN

CONNECTIONS = 10  # of the pool of each contestant, which is a store's default
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}

_numbers = itertools.count()


class Place(Struct, frozen=True, kw_only=True):
    """A fresh schema or database of a server."""

    url: str  # of a store there
    plain: str  # the server's own URL, without what only a store understands
    name: str  # of the schema or database
    address: dict[str, Any]

    def with_options(self, **options: str) -> str:
        """The URL of a store there, with more options."""
        return f"{self.url}{'&' if '?' in self.url else '?'}{urlencode(options)}"


class Servers:
    """One server of each kind, started when it is first asked for, ended by `close`."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._known: dict[str, dict[str, Any]] = {}
        self._about: dict[str, str] = {}

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the servers and remove their data."""
        self._stack.close()
        self._known.clear()

    def address(self, kind: str) -> dict[str, Any]:
        """Where the server is."""
        if kind not in self._known:
            own = os.environ.get(OWN[kind])
            if own:
                found: dict[str, Any] = {"url": own, "admin": own}
            else:
                found = self._stack.enter_context(private(kind)).address
            check = check_postgres if kind == "postgres" else check_mongodb
            self._about[kind] = check(found)
            self._known[kind] = found
        return self._known[kind]

    def about(self, kind: str) -> str:
        """The server's version, and what it does before it acknowledges a write."""
        self.address(kind)
        return self._about[kind]

    @contextmanager
    def postgres(self) -> Iterator[Place]:
        """A schema that is not made yet; dropped afterwards with all that is in it."""
        address = self.address("postgres")
        name = _fresh()
        url = postgres.store_url(address, name)
        parts = urlsplit(url)
        query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] != "schema"])
        plain = urlunsplit(parts._replace(query=query))
        try:
            yield Place(url=url, plain=plain, name=name, address=address)
        finally:
            asyncio.run(_drop_schema(plain, name))

    @contextmanager
    def mongodb(self) -> Iterator[Place]:
        """A database that is not made yet; dropped afterwards."""
        address = self.address("mongodb")
        name = _fresh()
        url = mongo.store_url(address, name, replicas=True)
        try:
            yield Place(url=url, plain=url, name=name, address=address)
        finally:
            with mongo.admin_client(address) as admin:
                admin.drop_database(name)


def _fresh() -> str:
    return f"bench_{os.getpid()}_{next(_numbers)}"


def check_postgres(address: dict[str, Any]) -> str:
    """What a server is; refuses one that could lose what it acknowledged."""

    async def look() -> str:
        import asyncpg

        conn = await asyncpg.connect(postgres.admin_url(address))
        try:
            found = {name: await conn.fetchval(f"SHOW {name}") for name in DURABLE}
            version = await conn.fetchval("SHOW server_version")
        finally:
            await conn.close()
        if found != DURABLE:
            raise ServerFailed(f"PostgreSQL is not safe against a power cut: {found}")
        return f"PostgreSQL {version}, {', '.join(' '.join(pair) for pair in found.items())}"

    return asyncio.run(look())


def check_mongodb(address: dict[str, Any]) -> str:
    """What a server is; refuses one that could lose what it acknowledged."""
    with mongo.admin_client(address) as admin:
        if "setName" not in admin.admin.command("hello"):
            raise ServerFailed("MongoDB is measured as a replica set, and this is none")
        status = admin.admin.command("serverStatus")
        if not status["storageEngine"].get("persistent"):
            raise ServerFailed("MongoDB does not keep what it is given")
        return f"MongoDB {status['version']}, a replica set; writes w=majority, j=true"


async def _drop_schema(url: str, name: str) -> None:
    import asyncpg

    conn = await asyncpg.connect(url)
    try:
        await conn.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
    finally:
        with contextlib.suppress(OSError):
            await conn.close()
