"""Readers that do not read, of a real server: what waits for them is bounded, nobody else is held
up, and whoever was cut goes on where it stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from holdfast import CaughtUp, Event
from holdfast.client import Client
from holdfast.server.streams.outbox import PIECE

from .checks import silent_readers
from .crowd import Reader, Server, asked, told, until

READERS = 50
LARGE = 12_000_000
MORE = 300  # MB that a server may grow by, half of what a copy for each reader would take


@contextlib.contextmanager
def silent(server: Server, session: str, count: int) -> Iterator[list[Reader]]:
    """Readers that have caught up, and take nothing any more."""
    readers = [Reader(server, session) for _ in range(count)]
    try:
        for reader in readers:
            reader.connect()
        for reader in readers:
            reader.catch_up()
        yield readers
    finally:
        for reader in readers:
            reader.close()


def test_large_event_to_silent_readers_is_held_once_and_holds_up_nobody(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        server.ask("PUT", "/sessions/s")
        before = server.memory()
        with silent(server, "s", READERS) as readers:
            server.send("s", "x" * LARGE)
            until(lambda: all(one.waiting for one in readers), "a reader was sent nothing")
            assert server.ask("GET", "/health").status_code == 200
            another = Reader(server, "s", small=False)
            log = server.log("s")
            another.read_to(log[-1][0])
            another.close()
            assert another.events == log
            assert server.ask("GET", "/ready").status_code == 200
            assert server.memory("VmHWM") - before < MORE
            readers[0].read_to(log[-1][0])  # whoever wakes up is sent all of it
            assert readers[0].events == log
        assert server.memory() - before < MORE


def test_large_events_of_many_sessions_wait_in_the_log_for_their_readers(tmp_path: Path) -> None:
    """Nothing is shared here: each reader waits for an event of its own."""
    share = 12 << 20
    with Server(tmp_path, process_bytes=share, principal_bytes=share) as server:
        names = [f"s{number}" for number in range(12)]
        for name in names:
            server.ask("PUT", f"/sessions/{name}")
            server.send(name, "x" * 6_000_000)
        before = server.memory("VmHWM")  # each session has its last messages at hand
        readers = [Reader(server, name) for name in names]
        try:
            for reader in readers:
                reader.connect()
            until(lambda: all(one.waiting for one in readers), "a reader was sent nothing")
            assert server.ask("GET", "/health").status_code == 200
            for reader in readers[3:]:  # two fill the buffers, and one waits until they are cut
                reader.close()
            for name, reader in zip(names, readers, strict=True):
                log = server.log(name)
                reader.read_to(log[-1][0])
                assert reader.events == log
                reader.close()
        finally:
            for reader in readers:
                reader.close()
        assert server.memory("VmHWM") - before < 60


def test_silent_readers_of_other_answers_hold_no_more_than_their_share(tmp_path: Path) -> None:
    """Pages of events are made whole: beyond the limit they are refused, and can be asked again."""
    with Server(tmp_path, principal_bytes=32 << 20) as server:
        server.ask("PUT", "/sessions/s")
        server.send("s", "x" * LARGE)
        before = server.memory("VmHWM")
        lines = [asked(server.port, "/v1/sessions/s/events?after=1") for _ in range(60)]
        try:
            begun = [line.recv(12) for line in lines]
            assert {*begun} == {b"HTTP/1.1 200", b"HTTP/1.1 429"}
            assert begun.count(b"HTTP/1.1 200") * LARGE <= (32 << 20)
            assert server.ask("GET", "/health").status_code == 200
            assert server.memory("VmHWM") - before < MORE
        finally:
            for line in lines:
                line.close()
        until(
            lambda: server.ask("GET", "/sessions/s/events?after=1").status_code == 200,
            "there is no room again",
        )


def test_reader_that_stalls_is_cut_and_resumes_without_loss(tmp_path: Path) -> None:
    with Server(tmp_path, stall_seconds=1.0) as server:
        server.ask("PUT", "/sessions/s")
        with silent(server, "s", 8) as readers:
            for _ in range(3):
                server.send("s", "x" * 3_000_000)
            until(lambda: all(one.cut for one in readers), "a reader was not cut")
            until(lambda: server.connections() == 0, "the server kept connections")
            log = server.log("s")
            for reader in readers:
                reader.read_to(log[-1][0])
                assert reader.events == log


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_readers_of_a_killed_server_miss_nothing(tmp_path: Path, kind: str) -> None:
    check = partial(silent_readers, silent=6, slow=3, events=6, kilobytes=900, kills=1)
    outcome = await asyncio.to_thread(check, kind, tmp_path)
    assert outcome.problems == []
    assert outcome.counts["kills"] == 1
    assert outcome.counts["readers"] == 9


async def test_client_that_stalls_resumes_by_itself(tmp_path: Path) -> None:
    with Server(tmp_path, stall_seconds=1.0) as server:
        async with Client(server.url) as client:
            session = await client.get_or_create("s")
            seen: list[int] = []

            async def read() -> None:
                async for item in session.follow(0):
                    if isinstance(item, CaughtUp):
                        await stalled.wait()
                    if isinstance(item, Event):
                        seen.append(item.seq)

            stalled = asyncio.Event()
            reading = asyncio.create_task(read())
            try:
                await asyncio.to_thread(_send_and_cut, server)
                stalled.set()
                log = await asyncio.to_thread(server.log, "s")
                while not seen or seen[-1] < log[-1][0]:
                    assert not reading.done(), reading.exception()
                    await asyncio.sleep(0.02)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
    assert seen == [seq for seq, _ in log]


def _send_and_cut(server: Server) -> None:
    until(lambda: server.connections() > 0, "the client did not connect")
    for _ in range(4):
        server.send("s", "x" * 8_000_000)
    until(lambda: server.connections() == 0, "the client was not cut")


@pytest.mark.parametrize("size", [PIECE - 300, PIECE, PIECE + 1, 3 * PIECE, 1_000_000])
def test_event_of_any_size_comes_whole(tmp_path: Path, size: int) -> None:
    with Server(tmp_path, "memory:") as server:
        server.ask("PUT", "/sessions/s")
        server.send("s", "é\u2028" * (size // 5))
        reader, log = Reader(server, "s", small=False), server.log("s")
        reader.read_to(log[-1][0])
        reader.close()
        assert reader.events == log
        page = server.ask("GET", "/sessions/s/events?limit=1000").json()["items"]
        assert [told(event) for event in page] == log
