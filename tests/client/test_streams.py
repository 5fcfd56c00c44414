"""Streams over wires that break and servers that go: one run, each event once, no text lost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import CaughtUp, Delta, Event, LogReplaced
from holdfast.client import Client, Patience, Session
from holdfast.errors import ServerUnavailable

from ..servers.process import free_port
from ..servers.wire import Wire
from .scene import PATIENCE, QUICK, SECRET, STORY, app, connected, serving


@contextlib.asynccontextmanager
async def wired(**settings: Any) -> AsyncGenerator[tuple[Client, Wire], None]:
    """A server behind a wire, and a client of it."""
    made = await asyncio.to_thread(app, **settings)
    async with serving(made) as url:
        with Wire(int(url.rpartition(":")[2])) as wire:
            patience = Patience(connect=2.0, answer=5.0, silence=2.0, total=20.0)
            address = f"http://127.0.0.1:{wire.port}"
            async with Client(address, SECRET, patience=patience) as client:
                yield client, wire


@contextlib.asynccontextmanager
async def two(folder: Path, **settings: Any) -> AsyncGenerator[tuple[Client, Client], None]:
    """Two servers on one store, and a client of each."""
    store = f"sqlite:{folder / 'shared.db'}"
    async with connected(store, **settings) as one, connected(store, **settings) as other:
        yield one, other


async def kinds(session: Session) -> list[str]:
    return [event.kind for event in await session.events()]


@pytest.mark.parity("user-demand", 27, 30)
@pytest.mark.parity("mastra-session", 172, 173)
@pytest.mark.parity("computeragent", "S15")
async def test_a_stream_that_is_cut_goes_on_and_begins_no_second_run() -> None:
    async with wired(delay=0.02) as (client, wire), asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        stream = session.stream("Tell a story.")
        seen: list[int] = []
        text, cuts = "", 0
        async for item in stream:
            if isinstance(item, Event):
                seen.append(item.seq)
            elif isinstance(item, Delta):
                assert item.offset == len(text)
                text += item.text
                if len(text) > (cuts + 1) * 100 and cuts < 4:
                    cuts += await asyncio.to_thread(wire.cut, ("reset", "close")[cuts % 2])
        assert cuts >= 4
        assert stream.result.text == text == STORY
        events = await session.events(after=seen[0] - 1)
        assert seen == [event.seq for event in events]
        assert [event.kind for event in events].count("run.started") == 1


@pytest.mark.parametrize("lost", ["request", "reply"])
async def test_a_message_whose_acceptance_was_lost_is_sent_again_and_is_one(lost: Any) -> None:
    async with wired() as (client, wire), asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        await asyncio.to_thread(wire.lose, lost)
        result = await session.send("Good day?")
        assert await asyncio.to_thread(lambda: wire.lost)
        assert result.text == "Good day."
        assert (await kinds(session)).count("message.received") == 1


async def test_a_line_that_goes_dead_is_noticed() -> None:
    async with wired(delay=0.02) as (client, wire), asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        stream = session.stream("Tell a story.")
        silenced = False
        async for item in stream:
            if isinstance(item, Delta) and not silenced:
                silenced = True
                hole = wire.silent()
                await asyncio.to_thread(hole.__enter__)
                asyncio.get_running_loop().call_later(3.0, _speak, hole)
        assert stream.result.text == STORY


def _speak(hole: Any) -> None:
    asyncio.get_running_loop().run_in_executor(None, hole.__exit__, None, None, None)


@pytest.mark.parity("mastra-session", 173, 174)
async def test_a_server_that_is_not_there_is_told_of_in_time_and_without_the_key() -> None:
    patience = Patience(connect=0.2, total=0.5)
    async with Client(f"http://127.0.0.1:{free_port()}", SECRET, patience=patience) as client:
        begun = time.monotonic()
        with pytest.raises(ServerUnavailable) as failed:
            await client.session("s").send("Good day?")
        with pytest.raises(ServerUnavailable):
            async for _ in client.session("s").follow():
                pass
        assert time.monotonic() - begun < PATIENCE
        assert failed.value.retryable
        assert SECRET not in f"{failed.value!r} {failed.value.__cause__!r}"


async def test_an_address_where_no_server_ever_was_is_not_tried_for_long() -> None:
    """With the whole of its patience, the client would try for longer than the test may last."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    patience = Patience(total=10 * PATIENCE, reach=0.5)
    async with asyncio.timeout(PATIENCE), Client(nowhere, SECRET, patience=patience) as client:
        for ask in (client.get_or_create("s"), anext(aiter(client.session("s").follow()))):
            with pytest.raises(ServerUnavailable, match=f"{nowhere} .*`holdfast serve`"):
                await ask


async def test_a_server_that_was_there_is_waited_for(tmp_path: Path) -> None:
    store, port = f"sqlite:{tmp_path / 'shared.db'}", free_port()
    apps = [await asyncio.to_thread(app, store) for _ in range(2)]
    patience = Patience(reach=0.001, total=PATIENCE)
    async with Client(f"http://127.0.0.1:{port}", SECRET, patience=patience) as client:
        async with serving(apps[0], port):
            session = await client.get_or_create("s")
        sending = asyncio.create_task(session.send("Good day?"))
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({sending}, timeout=0.5)  # there is nobody
            assert not sending.done()
            async with serving(apps[1], port):
                assert (await sending).text == "Good day."


@pytest.mark.parity("user-demand", 25, 28)
async def test_following_goes_on_from_any_cursor_on_any_server(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other), asyncio.timeout(PATIENCE):
        session = await one.get_or_create("s")
        await session.send("Tell a story.")
        cursors: list[str] = []
        events: list[Event] = []
        following = session.follow(0)
        items = aiter(following)
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            assert isinstance(item, Event)
            events.append(item)
            cursors.append(following.cursor)
        await items.aclose()
        assert [event.seq for event in events] == [*range(1, len(events) + 1)]
        for place, cursor in enumerate(cursors):
            rest = aiter(other.session("s").follow(cursor))
            found = [await anext(rest) for _ in range(len(events) - place)]
            assert found[:-1] == events[place + 1 :]
            assert isinstance(found[-1], CaughtUp)
            await rest.aclose()
        with pytest.raises(LogReplaced) as replaced:
            async for _ in other.session("s").follow("another-log.1"):
                pass
        assert cursors[0].startswith(f"{replaced.value.log}.")


async def test_a_log_that_was_begun_anew_is_told_of(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other), asyncio.timeout(PATIENCE):
        following = (await one.get_or_create("s")).follow(0)
        items = aiter(following)
        await anext(items)
        await items.aclose()
        await other.delete("s")
        again = await other.get_or_create("s")
        with pytest.raises(LogReplaced):
            async for _ in again.follow(following.cursor):
                pass


async def test_an_approval_is_answered_on_the_other_server(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other), asyncio.timeout(PATIENCE):
        session = await one.get_or_create("s")
        stream = session.stream("Pay.")
        async for _ in stream:
            pass
        (ask,) = stream.result.pending
        (item,) = (await other.pending()).items
        assert (item.session, item.id) == ("s", ask.id)
        await other.approve("s", ask.id)
        assert (await session.wait()).text == "Paid."
        assert (await other.session("s").wait()).text == "Paid."


async def test_a_stop_that_is_sent_to_another_server_stops_the_run(tmp_path: Path) -> None:
    async with two(tmp_path, delay=0.2) as (one, other), asyncio.timeout(PATIENCE):
        stream = (await one.get_or_create("s")).stream("Tell a story.")
        async for item in stream:
            if isinstance(item, Delta) and item.offset == 0:
                await other.session("s").abort("enough")
        assert stream.result.status == "aborted"


@pytest.mark.parity("computeragent", "S18")
async def test_a_rolling_restart_loses_no_run_and_nobody_notices(tmp_path: Path) -> None:
    store, port = f"sqlite:{tmp_path / 'shared.db'}", free_port()
    apps = [await asyncio.to_thread(app, store, delay=0.02, ttl=2.0, grace=0.1) for _ in range(3)]
    async with asyncio.timeout(PATIENCE), serving(apps[1]) as second:
        urls = [f"http://127.0.0.1:{port}", second]
        async with Client(urls, SECRET, patience=QUICK) as client:
            async with serving(apps[0], port):
                session = await client.get_or_create("s")
                stream = session.stream("Tell a story.")
                items = aiter(stream)
                text = ""
                while len(text) < 100:
                    item = await anext(items)
                    text += item.text if isinstance(item, Delta) else ""
            async with serving(apps[2], port):
                async for _ in items:
                    pass
                assert stream.result.text == STORY
                events = await session.events()
                assert [e.kind for e in events].count("run.started") == 1


@pytest.mark.parity("user-demand", 29)
@pytest.mark.parity("computeragent", 78)
async def test_a_reader_that_goes_or_reads_nothing_does_not_hold_up_the_run() -> None:
    async with connected(delay=0.005) as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        url = f"{client._transport._urls[0]}/v1/sessions/s/events"
        headers = {"accept": "text/event-stream", "authorization": f"Bearer {SECRET}"}
        async with (
            httpx.AsyncClient() as http,
            http.stream("GET", url, headers=headers) as stalled,
        ):
            assert stalled.headers["content-type"].startswith("text/event-stream")
            assert stalled.headers["x-accel-buffering"] == "no"
            assert stalled.headers["cache-control"] == "no-store"
            async with http.stream("GET", url, headers=headers) as gone:
                await session.post("Tell a story.")
                await anext(gone.aiter_raw())
            assert (await session.wait()).text == STORY


@pytest.mark.parity("user-demand", 25, 26)
@pytest.mark.parity("computeragent", 69)
async def test_a_cursor_comes_by_header_or_query_and_the_header_goes_before() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        await session.send("Good day?")
        last = (await session.events())[-1].seq
        url = f"{client._transport._urls[0]}/v1/sessions/s/events?until=idle"
        headers = {"accept": "text/event-stream", "authorization": f"Bearer {SECRET}"}
        async with httpx.AsyncClient(headers=headers) as http:

            async def seqs(query: str = "", **more: str) -> list[int]:
                text = (await http.get(url + query, headers=more)).text
                ids = [line for line in text.split("\n") if line.startswith("id: ")]
                return [int(line.rpartition(".")[2]) for line in ids]

            assert await seqs() == [*range(1, last + 1), last]
            assert await seqs("&after=2") == [*range(3, last + 1), last]
            assert await seqs("&after=2", **{"Last-Event-ID": "4"}) == [*range(5, last + 1), last]
            assert await seqs(f"&after={last}") == [last]
            text = (await http.get(f"{url}&after=9999")).text
            assert "event: resync" in text
            assert '"reason":"resync"' in text
