"""The pooler shares connections by transaction, and breaks what lives longer, as PgBouncer does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import asyncpg
import pytest

from tests import servers

from .test_servers import BROKEN

pytestmark = pytest.mark.server

PID = "SELECT pg_backend_pid()"
SIZE = 4  # server connections of a pool


@pytest.fixture
async def url(tmp_path: Path) -> str:
    return servers.url("pooled", tmp_path).partition("?")[0]


@pytest.fixture
async def client(url: str) -> AsyncGenerator[asyncpg.Connection, None]:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    yield connection
    await connection.close()


async def test_many_clients_share_few_connections(url: str) -> None:
    clients = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(3 * SIZE)]

    async def work(client: asyncpg.Connection) -> set[int]:
        seen = set()
        for n in range(10):
            async with client.transaction():
                seen.add(await client.fetchval(PID))
                assert await client.fetchval("SELECT $1::int", n) == n
        return seen

    pids = set().union(*await asyncio.gather(*(work(client) for client in clients)))
    for client in clients:
        await client.close()
    assert 1 < len(pids) <= SIZE


async def test_a_transaction_stays_on_one_connection(client: asyncpg.Connection) -> None:
    for _ in range(5):
        async with client.transaction():
            assert len({await client.fetchval(PID) for _ in range(5)}) == 1


async def test_transactions_go_from_connection_to_connection(client: asyncpg.Connection) -> None:
    pids = set()
    for _ in range(3 * SIZE):
        async with client.transaction():
            pids.add(await client.fetchval(PID))
    assert len(pids) > 1


async def test_settings_of_a_session_get_lost(client: asyncpg.Connection) -> None:
    await client.execute("SET search_path TO elsewhere")
    seen: set[str] = set()
    async with asyncio.timeout(30):
        while len(seen) < 2:  # on the connection where it was set, and on another
            async with client.transaction():
                seen.add(await client.fetchval("SHOW search_path"))


async def test_prepared_statements_get_lost(url: str) -> None:
    client = await asyncpg.connect(url)

    async def prepare_and_use() -> None:
        for n in range(50 * SIZE):
            await client.fetchval(f"SELECT $1::int + {n % 2}", n)

    with pytest.raises(
        (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
    ):
        await prepare_and_use()
    await client.close()


async def test_notices_get_lost(client: asyncpg.Connection) -> None:
    heard: list[object] = []
    await client.add_listener("here", lambda *notice: heard.append(notice))
    for _ in range(3 * SIZE):
        async with client.transaction():
            await client.execute("SELECT pg_notify('here', 'x')")
    assert len(heard) < 3 * SIZE
    client.terminate()  # what it listens to is somebody else's connection by now


async def test_an_error_in_a_transaction_leaves_the_connection_whole(
    client: asyncpg.Connection,
) -> None:
    for _ in range(2 * SIZE):
        with pytest.raises(asyncpg.DivisionByZeroError):
            await client.execute("SELECT 1 / 0")
        async with client.transaction():
            with pytest.raises(asyncpg.DivisionByZeroError):
                async with client.transaction():
                    await client.fetchval("SELECT $1::int / 0", 1)
            assert await client.fetchval("SELECT $1::int", 3) == 3


async def test_a_client_that_goes_in_a_transaction_leaves_nothing(url: str) -> None:
    for _ in range(2 * SIZE):
        client = await asyncpg.connect(url, statement_cache_size=0)
        await client.execute("BEGIN; SELECT pg_advisory_xact_lock(7)")
        client.terminate()
    client = await asyncpg.connect(url, statement_cache_size=0)
    async with client.transaction():
        await client.execute("SELECT pg_advisory_xact_lock(7)")
    await client.close()


async def test_settings_at_startup_are_refused(url: str) -> None:
    with pytest.raises(asyncpg.ProtocolViolationError, match="search_path"):
        await asyncpg.connect(url, server_settings={"search_path": "elsewhere"})


async def test_large_values_pass(client: asyncpg.Connection) -> None:
    text = "x" * 3_000_000
    async with client.transaction():
        assert await client.fetchval("SELECT $1::text", text) == text


async def test_a_server_that_restarts_ends_transactions_and_takes_new_ones() -> None:
    with servers.faulty("pooled") as place:
        url = place.url("x").partition("?")[0]
        client = await asyncpg.connect(url, statement_cache_size=0)
        await client.execute("BEGIN")
        await asyncio.to_thread(place.server.restart)
        with pytest.raises(BROKEN):
            await client.fetchval("SELECT 1")
        await client.close()
        again = await asyncpg.connect(url, statement_cache_size=0)
        async with again.transaction():
            assert await again.fetchval("SELECT 1") == 1
        await again.close()
