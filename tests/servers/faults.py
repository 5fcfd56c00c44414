"""Makes a running server refuse: what it was never asked for, in its own words."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg

from . import mongo, postgres
from .private import Private
from .process import until

DISK_FULL, FORBIDDEN, READ_ONLY = "53100", "42501", "25006"  # SQLSTATEs
NOT_PRIMARY, NO_DISK_SPACE, UNAUTHORIZED = 10107, 14031, 13  # codes of MongoDB


@contextlib.asynccontextmanager
async def admin(address: dict[str, Any], database: str = postgres.DATABASE) -> Any:
    """A superuser's connection to PostgreSQL, past every proxy."""
    connection = await asyncpg.connect(postgres.admin_url(address, database))
    try:
        yield connection
    finally:
        await connection.close()


def schema_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["schema"][0]


@contextlib.asynccontextmanager
async def raising(
    address: dict[str, Any], url: str, sqlstate: str, table: str = "events"
) -> AsyncGenerator[None, None]:
    """Every insert into a table of the store at `url` fails with this error."""
    schema = schema_of(url)
    async with admin(address) as sql:
        await sql.execute(
            f"CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"RAISE EXCEPTION 'refused by a test' USING ERRCODE = '{sqlstate}'; END $$; "
            f"CREATE TRIGGER refuse BEFORE INSERT ON {schema}.{table} "
            f"FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()"
        )
        try:
            yield
        finally:
            await sql.execute(f"DROP FUNCTION {schema}.refuse() CASCADE")


async def terminate(address: dict[str, Any]) -> int:
    """The server ends every connection to the store's database; returns how many."""
    async with admin(address) as sql:
        ended: int = await sql.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = $1 AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
            postgres.DATABASE,
        )
        return ended


@contextlib.contextmanager
def failing(
    server: Private,
    *commands: str,
    times: int | None = None,
    skip: int | None = None,
    **how: Any,
) -> Iterator[None]:
    """These commands fail: so many times, or from the one after so many, or always. `errorCode=…`,
    `closeConnection=True`, `writeConcernError={…}` are as MongoDB's `failCommand` has it."""
    mode: Any = "alwaysOn"
    if times is not None or skip is not None:
        mode = {"times": times} if skip is None else {"skip": skip}
    point = {"configureFailPoint": "failCommand"}
    with mongo.admin_client(server.address) as client:
        data = {"failCommands": list(commands), **how}
        client.admin.command({**point, "mode": mode, "data": data})
        try:
            yield
        finally:
            client.admin.command({**point, "mode": "off"})


def step_down(server: Private) -> None:
    """The primary steps down, and is elected again."""
    with mongo.admin_client(server.address) as client:
        client.admin.command({"replSetStepDown": 60, "force": True})
        client.admin.command({"replSetFreeze": 0})
        until(
            lambda: bool(client.admin.command("hello").get("isWritablePrimary")),
            "the set found no primary",
        )


def drop(url: str) -> None:
    """Remove the schema or database of a store that is closed. Not within an event loop."""
    if url.startswith("mongodb"):
        from pymongo import MongoClient

        parts = urlsplit(url)
        client: MongoClient[dict[str, Any]] = MongoClient(url)
        with client:
            client.drop_database(parts.path.lstrip("/"))
        return
    asyncio.run(_drop_schema(url))


async def _drop_schema(url: str) -> None:
    connection = await asyncpg.connect(url.partition("?")[0])
    try:
        await connection.execute("SET lock_timeout = '10s'; SET client_min_messages = 'error'")
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema_of(url)} CASCADE")
    finally:
        await connection.close()
