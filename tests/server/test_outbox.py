"""What waits in memory to be sent: who is let in, who waits, and what readers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing

import pytest

from holdfast import NewEvent, StoreUnavailable
from holdfast.errors import RateLimited
from holdfast.events import Event
from holdfast.harness.session.session import Session, core_of
from holdfast.server import ServerLimits
from holdfast.server.streams.backpressure import OpenStreams
from holdfast.server.streams.outbox import PRESSED, Outbox
from holdfast.server.streams.session_stream import StreamRequest, begin
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore

from .stream.scene import PATIENCE, harness, read, sent

LARGE = "x" * 300_000
TIGHT = ServerLimits(principal_bytes=400_000, process_bytes=1_000_000)


def test_room_is_counted_by_principal_and_for_all() -> None:
    outbox = Outbox(TIGHT)
    assert outbox.join("ann", ("log", 1), 300_000)
    assert outbox.join("ann", ("log", 1), 300_000)  # shared: it counts once
    assert not outbox.join("ann", ("log", 2), 300_000)
    assert outbox.join("bob", ("log", 1), 300_000)
    assert outbox.used == 300_000
    assert outbox.join("cid", ("log", 2), 300_000)
    assert outbox.join("dan", ("log", 3), 300_000)
    assert not outbox.join("eve", ("log", 4), 300_000)  # there is no room for all of them
    with pytest.raises(RateLimited, match="bytes of unsent responses"):
        outbox.begin("eve", 300_000, must=False)
    outbox.begin("eve", 300_000, must=True)
    outbox.finish("eve", 300_000)
    for name, place in (("ann", 1), ("ann", 1), ("bob", 1), ("cid", 2), ("dan", 3)):
        outbox.leave(name, ("log", place))
    assert outbox.used == 0


def test_answer_larger_than_any_limit_is_sent_alone() -> None:
    outbox = Outbox(TIGHT)
    outbox.add("ann", 1_000)  # what is small holds up nothing that is large
    outbox.begin("ann", 9_000_000, must=False)
    assert not outbox.join("bob", ("log", 1), 300_000)
    outbox.finish("ann", 9_000_000)
    assert outbox.join("bob", ("log", 1), 300_000)


async def test_readers_are_given_less_time_while_others_wait_for_room() -> None:
    outbox = Outbox(TIGHT)
    assert outbox.patience("ann") == TIGHT.stall_seconds
    assert outbox.join("ann", ("log", 1), 300_000)
    waiting = asyncio.create_task(outbox.freed("ann", 300_000, PATIENCE))
    await asyncio.sleep(0)
    assert outbox.patience("ann") == PRESSED
    assert outbox.patience("bob") == TIGHT.stall_seconds
    outbox.leave("ann", ("log", 1))
    assert await waiting
    assert outbox.patience("ann") == TIGHT.stall_seconds
    outbox.begin("ann", 300_000, must=False)
    with pytest.raises(RateLimited):
        outbox.begin("ann", 300_000, must=False)
    assert outbox.patience("ann") == PRESSED


async def noted(session: Session, text: str = LARGE) -> None:
    """Have a large event in the log, and here."""
    live = core_of(session).live
    head = live.state.head
    await live.store.append(session.key, [NewEvent.of("note.made", {"text": text})])
    await live.reach(head + 1)


async def test_reader_without_room_hears_that_it_is_alive_and_goes_on_when_there_is() -> None:
    async with harness(MemoryStore()) as serving, AsyncExitStack() as left:
        streams = OpenStreams(pace=0.0, heartbeat=0.02, outbox=Outbox(TIGHT))
        chunks: list[AsyncIterator[bytes]] = []
        for name in ("one", "two"):
            session = await serving.get_or_create(name)
            await noted(session)
            reading = await begin(session, StreamRequest(until="idle"))
            found = await left.enter_async_context(aclosing(streams.chunks(reading, name="ann")))
            chunks.append(found)
        first, second = chunks
        async with asyncio.timeout(PATIENCE):
            while b"note.made" not in await anext(first):  # and then it takes no more
                pass
            told = b""
            while told.count(b":\n\n") < 3:
                told += await anext(second)
            assert b"note.made" not in told
            rest = b"".join([chunk async for chunk in first])
            assert b"event: end" in rest
            events = [one async for one in sent(second) if one.name == "event"]
        assert [one.data["data"]["text"] for one in events if "text" in one.data["data"]] == [LARGE]


async def test_large_event_is_read_and_encoded_once_for_all_its_readers() -> None:
    store = FaultyStore(MemoryStore(), [])
    async with harness(store) as serving:
        session = await serving.get_or_create("s")
        await noted(session)
        await session.emit("note.made", {"text": "x" * 2_000_000})
        reads: list[int] = []
        event = core_of(session).live.event

        async def counted(seq: int, *, whole: bool = True) -> Event | None:
            if whole:
                reads.append(seq)
                await asyncio.sleep(0.05)
            return await event(seq, whole=whole)

        core_of(session).live.event = counted  # type: ignore[method-assign]
        streams = OpenStreams(pace=0.0)
        async with asyncio.timeout(PATIENCE):
            found = await asyncio.gather(*(read(session, streams, until="idle") for _ in range(20)))
        assert found == [found[0]] * 20
        assert (
            len([one for one in found[0] if one.name == "event"])
            == core_of(session).live.state.head
        )
        assert len(reads) < 10


async def test_event_that_cannot_be_read_for_a_while_is_read_again() -> None:
    async with harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        await noted(session)
        await noted(session, "small")
        await session.emit("note.made", {"text": "y" * 2_000_000})
        core_of(session).live.store = FaultyStore(
            core_of(session).live.store, [Fail(method="read", call=2), Fail(method="read", call=3)]
        )
        async with asyncio.timeout(PATIENCE):
            found = await read(session, until="idle")
        events = [one.data["seq"] for one in found if one.name == "event"]
        assert events == [*range(1, core_of(session).live.state.head + 1)]
        troubles = [one.data["code"] for one in found if one.name == "trouble"]
        assert troubles == [StoreUnavailable.code] * 2


async def test_server_that_goes_away_does_not_wait_for_room() -> None:
    async with harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        await noted(session)
        outbox = Outbox(TIGHT)
        outbox.begin("ann", 300_000, must=True)  # what somebody takes nothing of
        streams = OpenStreams(pace=0.0, heartbeat=0.02, outbox=outbox)
        reading = await begin(session, StreamRequest())
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(streams.chunks(reading, name="ann")) as found,
        ):
            while await anext(found) != b":\n\n":
                pass
            streams.close()
            (end,) = [one async for one in sent(found)]
        shown = core_of(session).live.state.head - 1
        assert end.data == {"reason": "shutdown", "cursor": f"{core_of(session).live.log}.{shown}"}
        assert outbox.used == 300_000


async def test_session_deleted_before_its_large_event_was_sent_ends_the_stream() -> None:
    store = MemoryStore()
    async with harness(store) as serving, harness(store) as other:
        session = await serving.get_or_create("s")
        await noted(session)
        await session.emit("note.made", {"text": "y" * 2_000_000})
        outbox = Outbox(TIGHT)
        outbox.begin("ann", 300_000, must=True)
        streams = OpenStreams(pace=0.0, heartbeat=0.02, outbox=outbox)
        reading = await begin(session, StreamRequest())
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(streams.chunks(reading, name="ann")) as found,
        ):
            while await anext(found) != b":\n\n":
                pass
            await other.delete("s")
            outbox.finish("ann", 300_000)
            rest = [one async for one in sent(found)]
        assert (rest[-1].name, rest[-1].data) == ("end", {"reason": "deleted"})


async def test_long_text_in_flight_comes_in_pieces_that_join() -> None:
    text = "é\u2028" * 50_000
    async with harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        core_of(session).live.say("m", text)
        streams = OpenStreams(pace=0.0)
        joined = ""
        chunks = streams.chunks(await begin(session, StreamRequest()))
        async with asyncio.timeout(PATIENCE), aclosing(chunks):
            async for one in sent(chunks):
                if one.name == "delta":
                    assert one.data["offset"] == len(joined)
                    assert len(one.data["text"]) < 20_000
                    joined += one.data["text"]
                if joined == text:
                    break
        assert joined == text
