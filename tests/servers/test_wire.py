"""The wire breaks when and where it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable

import pytest

from tests.servers import Wire
from tests.servers.process import free_port

PATIENCE = 30.0


class Echo:
    """A server that answers a line by the line, and remembers it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.heard: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
        writer.close()


class Line:
    """A client that sends lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, text: bytes) -> bytes:
        self.writer.write(text + b"\n")
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readline()

    def close(self) -> None:
        self.writer.close()


@pytest.fixture
async def echo() -> AsyncGenerator[Echo, None]:
    echo = Echo()
    async with await asyncio.start_server(echo.answer, "127.0.0.1", echo.port):
        yield echo


@pytest.fixture
async def wire(echo: Echo) -> AsyncGenerator[Wire, None]:
    with Wire(echo.port) as wire:
        yield wire


async def dial(wire: Wire) -> Line:
    return Line(*await asyncio.open_connection("127.0.0.1", wire.port))


async def call(wire: Wire) -> bytes:
    line = await dial(wire)
    try:
        return await line.ask(b"one")
    finally:
        line.close()


async def test_what_is_sent_passes(wire: Wire) -> None:
    line = await dial(wire)
    assert await line.ask(b"one") == b"one\n"
    assert await line.ask(b"x" * 60_000) == b"x" * 60_000 + b"\n"
    line.close()


async def test_a_cut_ends_all_connections_and_new_ones_pass(wire: Wire) -> None:
    lines = [await dial(wire) for _ in range(3)]
    for line in lines:
        await line.ask(b"one")
    assert wire.cut() == 3
    for line in lines:
        with pytest.raises(ConnectionResetError):
            await line.ask(b"two")
        line.close()
    again = await dial(wire)
    assert await again.ask(b"three") == b"three\n"
    assert wire.cut("close") == 1
    assert await again.ask(b"four") == b""
    again.close()


async def test_cutting_goes_on_until_it_is_over(wire: Wire) -> None:
    with wire.cutting(every=0.01):
        await eventually(lambda: wire.cuts > 2, wire)
    cuts = wire.cuts
    line = await dial(wire)
    assert await line.ask(b"one") == b"one\n"
    assert wire.cuts == cuts
    line.close()


async def eventually(holds: Callable[[], bool], wire: Wire) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            with contextlib.suppress(OSError):
                line = await dial(wire)
                await line.ask(b"x")
                line.close()


async def test_a_lost_reply_is_of_a_request_that_arrived(wire: Wire, echo: Echo) -> None:
    line = await dial(wire)
    wire.lose("reply", 2)
    assert await line.ask(b"one") == b"one\n"
    with pytest.raises(ConnectionResetError):
        await line.ask(b"two")
    assert wire.lost
    assert echo.heard == [b"one\n", b"two\n"]
    line.close()


async def test_a_lost_request_does_not_arrive(wire: Wire, echo: Echo) -> None:
    line = await dial(wire)
    wire.lose("request", 2, how="close")
    assert await line.ask(b"one") == b"one\n"
    assert await line.ask(b"two") == b""
    assert echo.heard == [b"one\n"]
    line.close()


async def test_disarmed_it_tells_how_many_passed(wire: Wire) -> None:
    line = await dial(wire)
    wire.lose("reply", 100)
    for n in range(3):
        await line.ask(b"%d" % n)
    assert wire.disarm() == 3
    line.close()


async def test_refusing_is_like_nobody_there(wire: Wire) -> None:
    line = await dial(wire)
    await line.ask(b"one")
    with wire.refusing():
        with pytest.raises(ConnectionRefusedError):
            await dial(wire)
        with pytest.raises(ConnectionResetError):
            await line.ask(b"two")
    line.close()
    line = await dial(wire)
    assert await line.ask(b"three") == b"three\n"
    line.close()


async def test_silence_takes_connections_and_passes_nothing(wire: Wire, echo: Echo) -> None:
    old = await dial(wire)
    await old.ask(b"one")
    with wire.silent():
        new = await dial(wire)
        for line in (old, new):
            line.writer.write(b"two\n")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(line.reader.readline(), 0.1)
    assert echo.heard == [b"one\n"]
    for line in (old, new):
        with pytest.raises(ConnectionResetError):
            await line.reader.readline()
        line.close()


async def test_a_delay_is_waited_for(wire: Wire) -> None:
    line = await dial(wire)
    with wire.delaying(0.2):
        began = time.monotonic()
        assert await line.ask(b"one") == b"one\n"
        assert time.monotonic() - began > 0.39  # there and back; the least, never the most
    line.close()


async def test_a_server_that_is_down_resets(echo: Echo) -> None:
    with Wire(free_port()) as wire, pytest.raises(ConnectionResetError):
        await call(wire)  # when it dials, or a moment later
