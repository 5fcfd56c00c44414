"""Streams as their readers meet them: between the last word and its saving, through long silence,
by many viewers of two servers, and from a cursor that is worth nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Agent, CaughtUp, Delta, Event, Harness, LogConfig, connect, tool
from holdfast.client import Client
from holdfast.events import Appended, Key, NewEvent
from holdfast.harness.live.log import Listener
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import SharedSecret, create_app
from holdfast.server.app import service_of
from holdfast.server.streams.backpressure import HEARTBEAT, OpenStreams
from holdfast.store import Lease, Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing import FaultyStore
from holdfast.values.stream_items import Item
from tests.client.scene import PATIENCE, QUICK, SECRET, STORY, app, connected, serving
from tests.server.stream.scene import Sent, sent

READS = {"accept": "text/event-stream", "authorization": f"Bearer {SECRET}"}
WORDS = [f"{n:03} é\U0001f600 " for n in range(400)]
PAUSE = 0.001  # seconds between two words: long enough for drafts to be written


def talker(store: str | Store, **say: Any) -> Harness:
    model = ScriptedModel([Say(**say)], repeat=True)
    silent = LogConfig(level="silent")
    return Harness(
        Agent("talker", instructions="Talk."), default_model=model, store=store, logging=silent
    )


async def read_run(listener: Listener) -> list[Item]:
    """What is told until a run has ended."""
    found: list[Item] = []
    async with aclosing(aiter(listener)) as items:
        async for item in items:
            found.append(item)
            if isinstance(item, Event) and item.kind == "run.finished":
                break
    return found


def joined(items: Sequence[Item]) -> str:
    """The text of the only message, put together of its deltas; fails where they do not join."""
    text = ""
    for item in items:
        if isinstance(item, Delta):
            assert item.offset == len(text)
            text += item.text
    return text


class Holding(FaultyStore):
    """A store on which whole messages wait before they are saved."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def append(self, key: Key, events: Sequence[NewEvent], **options: Any) -> Appended:
        if any(event.kind == "message.completed" for event in events):
            self.reached.set()
            await self.go.wait()
        return await super().append(key, events, **options)


@pytest.mark.parity("user-demand", 28, 30)
async def test_who_comes_between_the_last_word_and_its_saving_misses_nothing() -> None:
    inner = MemoryStore()
    store = Holding(inner)
    async with (
        asyncio.timeout(PATIENCE),
        talker(store, chunks=WORDS) as driver,
        talker(inner, text="never") as other,
    ):
        session = await driver.get_or_create("s")
        await session.post("Go.")
        await store.reached.wait()
        assert "message.completed" not in [event.kind for event in await session.events()]
        here, told = session.subscribe(after=0), asyncio.Event()
        found: list[Item] = []

        async def watch() -> None:
            async for item in here:
                found.append(item)
                if joined(found) == "".join(WORDS):
                    told.set()
                if isinstance(item, Event) and item.kind == "run.finished":
                    return

        watching = asyncio.create_task(watch())
        elsewhere = (await other.open("s")).subscribe(after=0)
        reading = asyncio.create_task(read_run(elsewhere))
        await told.wait()  # all of it, and nothing is saved yet
        assert "message.completed" not in [e.kind for e in found if isinstance(e, Event)]
        store.go.set()
        await watching
        there = await reading
    events = [event async for event in inner.read(session.key)]
    for items in (found, there):
        assert [item for item in items if isinstance(item, Event)] == events
        assert "".join(WORDS).startswith(joined(items))
    (message,) = [event for event in events if event.kind == "message.completed"]
    assert message.json()["text"] == joined(found)


class Weighed(FaultyStore):
    """A store that weighs what it is given to write while a model speaks."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.drafts_bytes = self.events_bytes = self.writes = 0

    async def append(self, key: Key, events: Sequence[NewEvent], **options: Any) -> Appended:
        self.events_bytes += sum(len(event.data) for event in events)
        return await super().append(key, events, **options)

    async def put_draft(
        self, key: Key, message: str, offset: int, text: str, *, fence: Lease
    ) -> None:
        self.writes += 1
        self.drafts_bytes += len(text.encode())
        await super().put_draft(key, message, offset, text, fence=fence)


@pytest.mark.parity("user-demand", 30)
@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_streamed_answer_is_written_in_few_pieces_and_reads_as_it_was_heard(
    kind: str, tmp_path: Path
) -> None:
    whole = "".join(WORDS)
    url = f"{kind}:{tmp_path / 'store'}"
    async with connect(url) as inner:
        store = Weighed(inner)
        async with talker(store, chunks=WORDS, delay=PAUSE) as harness, asyncio.timeout(PATIENCE):
            session = await harness.get_or_create("s")
            heard = session.subscribe(after=0)
            reading = asyncio.create_task(read_run(heard))
            await session.send("Go.")
            live = joined(await reading)
    assert 1 <= store.writes < len(WORDS) / 4  # not one for each word
    assert store.drafts_bytes <= len(whole.encode())  # and no word twice
    assert store.drafts_bytes + store.events_bytes <= 3 * len(whole.encode())
    async with talker(url, text="never") as harness:
        replayed = await read_run((await harness.open("s")).subscribe(after=0))
    (message,) = [e for e in replayed if isinstance(e, Event) and e.kind == "message.completed"]
    assert message.json()["text"].encode() == live.encode() == whole.encode()


@asynccontextmanager
async def streaming(url: str, path: str = "events", **query: str) -> AsyncGenerator[Any, None]:
    """The raw answer to a reader of server-sent events."""
    async with (
        httpx.AsyncClient(headers=READS, timeout=PATIENCE) as http,
        http.stream("GET", f"{url}/v1/sessions/s/{path}", params=query) as answer,
    ):
        yield answer


@pytest.mark.parity("user-demand", 29)
async def test_a_tool_that_is_silent_for_long_leaves_the_stream_alive() -> None:
    """No silence is longer than a heartbeat, and the usual one is far below what proxies bear."""
    assert HEARTBEAT <= 15.0
    gate = asyncio.Event()

    @tool
    async def dig() -> str:
        """Say nothing for long."""
        await gate.wait()
        return "dug"

    model = ScriptedModel([Say("I dig.", calls=[Use("dig")]), "Dug."], per_turn=True)
    agent = Agent("clerk", instructions="Obey.", tools=[dig])
    harness = {"default_model": model, "logging": LogConfig(level="silent")}
    made = await asyncio.to_thread(
        create_app, agents=[agent], stores="memory:", auth=SharedSecret(SECRET), harness=harness
    )
    service_of(made).streams = OpenStreams(heartbeat=0.02)
    async with asyncio.timeout(PATIENCE), serving(made) as url, Client(url, SECRET) as client:
        session = await client.get_or_create("s")
        seq = await session.post("Dig.")
        async with streaming(url, input=str(seq)) as answer:
            assert answer.headers["x-accel-buffering"] == "no"
            beats, text = 0, b""
            async for chunk in answer.aiter_raw():
                text += chunk
                beats = beats + 1 if chunk == b":\n\n" and b"tool.started" in text else beats
                if beats == 20:
                    gate.set()
        assert beats >= 20
        assert text.count(b"event: end") == 1
        assert b'"reason":"finished"' in text
        assert [e.kind for e in await session.events()].count("run.started") == 1


async def view(client: Client, runs: int) -> list[Event]:
    """All events from the first, until so many runs have ended."""
    seen: list[Event] = []
    marks = 0
    async with aclosing(aiter(client.session("s").follow(0))) as items:
        async for item in items:
            marks += isinstance(item, CaughtUp)
            if isinstance(item, Event):
                seen.append(item)
                runs -= item.kind == "run.finished"
            if not runs:
                break
    assert marks == 1  # between what was and what happens
    return seen


@pytest.mark.parity("user-demand", 27, 29)
async def test_twenty_viewers_of_two_servers_see_one_order(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'shared.db'}"
    async with (
        asyncio.timeout(PATIENCE),
        connected(store, delay=0.001) as one,
        connected(store, delay=0.001) as other,
    ):
        clients = (one, other)
        await (await one.get_or_create("s")).send("Good day?")
        viewers = [asyncio.create_task(view(clients[n % 2], 5)) for n in range(20)]
        sending = (clients[n % 2].session("s").send("Tell a story.") for n in range(4))
        results = await asyncio.gather(*sending)
        views = await asyncio.gather(*viewers)
        log = await one.session("s").events()
    assert [result.text for result in results] == [STORY] * 4
    assert [event.seq for event in log] == [*range(1, len(log) + 1)]
    assert views == [log] * 20


@pytest.mark.parity("user-demand", 26)
@pytest.mark.parametrize("cursor", ["another-log.1", "9999", "nonsense"])
async def test_who_is_told_to_begin_anew_has_all_there_is_from_a_display_and_what_follows_it(
    cursor: str,
) -> None:
    made = await asyncio.to_thread(app)
    async with (
        asyncio.timeout(PATIENCE),
        serving(made) as url,
        Client(url, SECRET, patience=QUICK) as client,
    ):
        session = await client.get_or_create("s")
        await session.send("Tell a story.")
        async with streaming(url, after=cursor) as answer:
            resync, end = [one async for one in sent(answer.aiter_raw())]
        assert (resync.name, end.data) == ("resync", {"reason": "resync"})
        display = await session.display.get()
        assert display.message is not None
        assert display.message.text == STORY
        assert resync.data["cursor"] == f"{resync.data['log']}.{display.head}"
        await session.send("Good day?")
        async with streaming(url, after=resync.data["cursor"], until="idle") as answer:
            rest: list[Sent] = [one async for one in sent(answer.aiter_raw())]
        seqs = [one.data["seq"] for one in rest if one.name == "event"]
        assert seqs == [e.seq for e in await session.events(after=display.head)]
        assert len(seqs) > 0
