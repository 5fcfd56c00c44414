"""Closing a client: as often as one likes, also where the network is gone, and nothing of it stays
open at the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from litestar import Litestar

from holdfast import CaughtUp
from holdfast.client import Client, Patience, Session
from holdfast.client.sync import Client as SyncClient
from holdfast.errors import HarnessClosed, HoldfastError
from holdfast.server.app import service_of

from ..servers.process import free_port
from ..servers.wire import Wire
from .scene import PATIENCE, SECRET, Server, app

LONG = Patience(connect=60.0, answer=60.0, silence=60.0, total=600.0)


@contextlib.asynccontextmanager
async def served() -> AsyncGenerator[tuple[Litestar, Server, Wire], None]:
    """A server behind a wire."""
    made = await asyncio.to_thread(app, delay=0.01)
    port = free_port()
    server = Server(made, port)
    task = asyncio.create_task(server.serve())
    while not server.started:
        assert not task.done(), task.exception()
        await asyncio.sleep(0.01)
    try:
        with Wire(port) as wire:
            yield made, server, wire
    finally:
        server.should_exit = True
        await task


def client_of(wire: Wire) -> Client:
    return Client(f"http://127.0.0.1:{wire.port}", SECRET, patience=LONG)


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - whatever is asked for has no event
            await asyncio.sleep(0.01)


def users(made: Litestar) -> int:
    """How many requests use a session of the server."""
    engine: Any = service_of(made).engines["holdfast"]
    return sum(use.users for use in engine._uses._uses.values())


async def follow(session: Session, begun: asyncio.Event) -> None:
    async for item in session.follow(0):
        if isinstance(item, CaughtUp):
            begun.set()


@pytest.mark.parity("computeragent", "S21")
@pytest.mark.parametrize("network", ["there", "cut", "silent"])
async def test_a_client_is_closed_twice_and_leaves_nothing_open(network: str) -> None:
    async with served() as (made, server, wire):
        client, begun = client_of(wire), asyncio.Event()
        session = await client.get_or_create("s")
        await session.send("Good day?")
        reading = asyncio.create_task(follow(session, begun))
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        assert (service_of(made).streams.count, users(made)) == (1, 1)
        with contextlib.ExitStack() as silence:
            if network == "cut":
                wire.cut()
            elif network == "silent":
                silence.enter_context(wire.silent())
            async with asyncio.timeout(PATIENCE):
                await client.aclose()
                await client.aclose()
                with pytest.raises(HoldfastError):  # whoever still reads is told at once
                    await reading
                with pytest.raises(HarnessClosed):
                    await session.send("More?")
                with pytest.raises(HarnessClosed):
                    await client.health()
        await until(lambda: service_of(made).streams.count == 0)
        await until(lambda: users(made) == 0)
        await until(lambda: not server.server_state.connections)
        # What it left behind is as it was: another one goes on.
        async with client_of(wire) as other, asyncio.timeout(PATIENCE):
            assert len(await other.session("s").transcript()) == 2


@pytest.mark.parity("computeragent", "S21")
async def test_so_is_one_without_await() -> None:
    def use(port: int, last: Callable[[], Any]) -> None:
        client = SyncClient(f"http://127.0.0.1:{port}", SECRET, patience=LONG)
        session = client.get_or_create("s")
        session.send("Good day?")
        items = iter(session.follow(0))
        next(items)
        last()
        assert (client.close(), client.close()) == (True, False)
        with pytest.raises(HarnessClosed):
            session.send("More?")

    async with served() as (made, server, wire), asyncio.timeout(2 * PATIENCE):
        await asyncio.to_thread(use, wire.port, lambda: None)
        await asyncio.to_thread(use, wire.port, wire.cut)
        await until(lambda: service_of(made).streams.count == 0)
        await until(lambda: users(made) == 0)
        await until(lambda: not server.server_state.connections)
