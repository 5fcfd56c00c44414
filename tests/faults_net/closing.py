"""Closing a PostgreSQL store while the connection dies on which it listens."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path

import asyncpg

from holdfast import CaughtUp, NewEvent, Store, connect
from holdfast.events import key
from tests import servers
from tests.servers.postgres import admin_url

from ..crash.outcome import Outcome, Tick, quiet

PATIENCE = 30.0  # seconds until a close counts as hanging
TURNS = 20  # of the event loop, in which a close has told the server what it has to tell

Closing = asyncio.Task[None]


def killed_listeners(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """The backend of the listening connection dies or stops while the store is closed: the close
    ends in every round, each in the next of `WAYS`."""
    outcome = Outcome()
    with servers.private(kind) as server:
        for number in range(rounds):
            tick(number, rounds)
            way = WAYS[number % len(WAYS)]
            asyncio.run(_closed(server, f"{folder} {number}", way, outcome))
    return outcome


async def _closed(
    server: servers.Private,
    place: str,
    way: Callable[[Store, int], Awaitable[Closing]],
    outcome: Outcome,
) -> None:
    async with connect(server.url(place)) as other:
        await other.append(key("s"), [NewEvent.of("note.made")], create=True)
    store = await connect(server.url(place))
    async with aclosing(store.follow(key("s"))) as following:
        async for item in following:
            if isinstance(item, CaughtUp):
                break
        backend = await _listener(server)
        try:
            closing = await way(store, backend)
            done, _ = await asyncio.wait({closing}, timeout=PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.kill(backend, signal.SIGKILL)
        outcome.counts["closes"] += 1
        outcome.expect(done, f"{way.__name__}: the close did not end within {PATIENCE:g} s")
        if done:
            closing.result()


async def stopped_then_killed(store: Store, backend: int) -> Closing:
    """The backend dies after the close has asked it for something."""
    closing = await stopped(store, backend)
    os.kill(backend, signal.SIGKILL)
    return closing


async def killed(store: Store, backend: int) -> Closing:
    """The connection is lost at any moment of the close."""
    os.kill(backend, signal.SIGKILL)
    return asyncio.create_task(store.aclose())


async def stopped(store: Store, backend: int) -> Closing:
    """The backend never answers what the close asks for."""
    os.kill(backend, signal.SIGSTOP)
    closing = asyncio.create_task(store.aclose())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return closing


WAYS = (stopped_then_killed, killed, stopped)


async def _listener(server: servers.Private) -> int:
    """The process of the server that serves the listening connection, once it listens."""
    admin = await asyncpg.connect(admin_url(server.address))
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await admin.fetch(
                    "SELECT pid FROM pg_stat_activity WHERE datname = 'holdfast'"
                    " AND application_name <> 'holdfast' AND query LIKE '%LISTEN%'"
                )
                if found:
                    return int(found[0]["pid"])
                await asyncio.sleep(0.01)
    finally:
        await admin.close()
