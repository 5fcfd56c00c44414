"""What a reader is given: exactly what follows its cursor, a mark, what happens, and an end that
says why."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from holdfast import InvalidValue, StoreUnavailable, connect, key
from holdfast.events import Event, NewEvent
from holdfast.harness.session.session import core_of
from holdfast.server import ServerLimits
from holdfast.server.streams.backpressure import OpenStreams, StreamWriter
from holdfast.server.streams.session_stream import FAILED, StreamRequest, begin, failure
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore
from holdfast.values.stream_items import CaughtUp
from holdfast.wire import End

from .scene import PATIENCE, STORY, Sent, harness, names, read, sent, texts


@pytest.mark.parity("user-demand", 25, 28)
@pytest.mark.parity("mastra-session", 172)
@pytest.mark.parity("computeragent", 67, 69, 74, 81)
async def test_a_cursor_gives_exactly_what_follows_it_also_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'one.db'}"
    async with harness(url) as serving:
        session = await serving.get_or_create("s")
        await session.send("Tell a story.")
        log, kinds = core_of(session).live.log, [e.kind for e in await session.events()]
        whole = await read(session, until="idle")
    assert names(whole) == ["event", "caught_up", "end"]
    events = [one for one in whole if one.name == "event"]
    assert [one.data["kind"] for one in events] == kinds
    assert [one.id for one in events] == [f"{log}.{n}" for n in range(1, len(kinds) + 1)]
    assert whole[-1].data == {"reason": "finished", "cursor": events[-1].id}
    async with harness(url) as serving:
        session = await serving.open("s")
        for place, one in enumerate(events):
            rest = await read(session, after=one.id, until="idle")
            assert rest == [*events[place + 1 :], whole[-2], whole[-1]]
        assert await read(session, after=str(len(events) - 1), until="idle") == whole[-3:]


@pytest.mark.parity("user-demand", 30)
async def test_text_in_flight_joins_and_has_no_id_and_a_late_reader_gets_all_of_it() -> None:
    async with harness(MemoryStore(), delay=0.01) as serving:
        session = await serving.get_or_create("s")
        reading = await begin(session, StreamRequest(until="idle", after="now"))
        seq = await session.post("Tell a story.")
        late: asyncio.Task[list[Sent]] | None = None
        found: list[Sent] = []
        async with asyncio.timeout(PATIENCE), aclosing(OpenStreams().chunks(reading)) as chunks:
            async for one in sent(chunks):
                found.append(one)
                if one.name == "delta" and late is None:
                    late = asyncio.create_task(read(session, after=str(seq), until="idle"))
            assert late is not None
            second = await late
    for heard in (found, second):
        (message,) = [one.data for one in heard if one.data.get("kind") == "message.completed"]
        assert message["data"]["text"] == STORY
        assert texts(heard) == {message["id"]: STORY}
        assert {one.id for one in heard if one.name == "delta"} == {None}
    assert [one for one in found if one.name == "event"][-5:] == [
        one for one in second if one.name == "event"
    ][-5:]


@pytest.mark.parity("user-demand", 26)
@pytest.mark.parity("computeragent", 73)
@pytest.mark.parametrize(
    "cursor", ["{log}.99", "other.1", "99", "{log}.", "{log}.-1", "nonsense", "{log}.1.x", "{log}"]
)
async def test_a_cursor_that_is_not_of_this_log_is_answered_and_not_guessed_at(cursor: str) -> None:
    async with harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        log, head = core_of(session).live.log, core_of(session).live.state.head
        resync, end = await read(session, after=cursor.format(log=log))
    assert resync.name == "resync"
    assert (resync.data["log"], resync.data["head"]) == (log, head)
    assert resync.data["cursor"] == f"{log}.{head}"
    assert (end.name, end.data) == ("end", {"reason": "resync"})


@pytest.mark.parity("user-demand", 27)
async def test_what_waits_for_a_person_ends_it_and_going_on_from_there_shows_the_rest() -> None:
    async with harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        seq = await session.post("Pay.")
        async with asyncio.timeout(PATIENCE):
            first = await read(session, input=seq)
            assert first[-1].data["reason"] == "waiting"
            (ask,) = first[-1].data["result"]["pending"]
            assert (await read(session, until="idle"))[-1].data["reason"] == "waiting"
            await session.approve(ask["id"])
            rest = await read(session, input=seq, after=first[-1].data["cursor"])
        result = rest[-1].data["result"]
        assert (rest[-1].data["reason"], result["status"]) == ("finished", "done")
        assert result["text"] == "Paid."
        wanted = [e.seq for e in await session.events(after=seq - 1)]
    assert [one.data["seq"] for one in first + rest if one.name == "event"] == wanted


async def test_a_reader_of_one_input_sees_no_other_and_is_told_where_it_waits() -> None:
    async with harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            await session.send("Pay.")
            queued = await session.post("Good day?")
            (*_, end) = await read(session, input=queued)
            assert (end.data["reason"], end.data["result"]["status"]) == ("waiting", "queued")
            await session.deny(reason="no")
            await session.wait()
            found = await read(session, input=queued, after="now")
            assert found[-1].data["result"]["text"] == "Good day."
            found = await read(session, input=queued, after=str(queued - 1))
        seen = [one.data["kind"] for one in found if one.name == "event"]
    assert seen[0] == "message.received"
    assert "pending.settled" not in seen
    assert seen[-1] == "run.finished"


async def test_an_input_that_is_no_message_is_refused_before_anything_is_sent() -> None:
    async with harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        for wrong in (0, 1, 99, -4):
            with pytest.raises(InvalidValue, match="input"):
                await begin(session, StreamRequest(input=wrong))


@pytest.mark.parity("user-demand", 27, 29)
@pytest.mark.parity("mastra-session", 171)
@pytest.mark.parity("computeragent", 77)
async def test_silence_is_broken_and_a_server_that_goes_says_so() -> None:
    async with harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        streams = OpenStreams(heartbeat=0.01)
        chunks = streams.chunks(await begin(session, StreamRequest(after="now")))
        async with asyncio.timeout(PATIENCE), aclosing(chunks):
            seen = [await anext(chunks) for _ in range(5)]
            assert seen[-1] == b":\n\n"
            streams.close()
            rest = b"".join([chunk async for chunk in chunks])
        assert rest.endswith(b"\n\n")
        log, head = core_of(session).live.log, core_of(session).live.state.head
        assert f'{{"reason":"shutdown","cursor":"{log}.{head}"}}'.encode() in rest
        (last,) = [one for one in await read(session, streams) if one.name == "end"]
        assert last.data["reason"] == "shutdown"
        assert streams.count == 0


@pytest.mark.parity("computeragent", 75, 76, 78)
async def test_many_readers_see_the_same_and_those_who_leave_stop_nothing() -> None:
    async with harness(MemoryStore(), delay=0.002) as serving:
        session = await serving.get_or_create("s")
        streams = OpenStreams()
        gone = [streams.chunks(await begin(session, StreamRequest())) for _ in range(5)]
        for chunks in gone:
            await anext(chunks)
        seq = await session.post("Tell a story.")
        tasks = [asyncio.create_task(read(session, streams, input=seq)) for _ in range(10)]
        for chunks in gone:
            await chunks.aclose()
        async with asyncio.timeout(PATIENCE):
            found = await asyncio.gather(*tasks)
        events = [[one for one in each if one.name == "event"] for each in found]
        assert events == [events[0]] * 10
        assert [e.kind for e in await session.events()].count("run.started") == 1
        assert streams.count == 0


@pytest.mark.parity("user-demand", 29)
async def test_a_reader_that_does_not_read_costs_little_and_misses_nothing() -> None:
    async with harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        flow = StreamWriter(await begin(session, StreamRequest()), pace=lambda: 0.0)
        chunks = flow.chunks()
        await anext(chunks)
        for number in range(300):
            note = NewEvent.of("note.made", {"n": number, "text": "x" * 2_000})
            await core_of(session).live.store.append(session.key, [note])
        await core_of(session).live.until(lambda: core_of(session).live.state.head >= 300)
        held = sum(len(part.data) for part in flow._waiting if hasattr(part, "data"))
        assert held < ServerLimits().reader_bytes + 4_000
        found: list[Sent] = []
        async with asyncio.timeout(PATIENCE), aclosing(chunks):
            async for one in sent(chunks):
                found.append(one)
                if one.data.get("seq") == core_of(session).live.state.head:
                    flow.end(End(reason="shutdown"))
        head = core_of(session).live.state.head
    assert [one.data["seq"] for one in found if one.name == "event"] == [*range(1, head + 1)]
    assert head > 300


@pytest.mark.parity("user-demand", 27)
async def test_a_session_that_goes_says_how_it_went() -> None:
    store = MemoryStore()
    async with harness(store) as serving, harness(store) as other:
        for id, happens, reason in (
            ("a", "delete", "deleted"),
            ("b", "close", "closed"),
            ("c", "move", "moved"),
        ):
            session = await serving.get_or_create(id)
            chunks = OpenStreams().chunks(await begin(session, StreamRequest()))
            reading = sent(chunks)
            while (await anext(reading)).name != "caught_up":
                pass
            if happens == "delete":
                await other.delete(id)
            elif happens == "close":
                await serving.close(id)
            else:
                moved = NewEvent.of("session.moved", {"to": "elsewhere"})
                await store.append(key(id), [moved])
            async with asyncio.timeout(PATIENCE), aclosing(chunks):
                end = [one async for one in reading][-1]
            assert (end.name, end.data["reason"]) == ("end", reason)
        session = await serving.open("c")
        async with asyncio.timeout(PATIENCE):
            again = (await read(session, after="now"))[-1]
        assert again.data["reason"] == "moved"
        assert again.data["error"]["fields"]["to"] == "elsewhere"


@pytest.mark.parity("user-demand", 26)
async def test_a_log_that_was_begun_anew_is_not_taken_for_the_old_one() -> None:
    store = MemoryStore()
    async with harness(store) as one, harness(store) as two:
        session = await one.get_or_create("s")
        old = core_of(session).live.log
        await two.delete("s")
        again = await two.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            resync, end = await read(again, after=f"{old}.1")
    assert resync.data["log"] == core_of(again).live.log != old
    assert end.data["reason"] == "resync"


@pytest.mark.parity("user-demand", 24)
@pytest.mark.parity("mastra-session", 170)
async def test_a_store_that_fails_is_told_of_and_nothing_is_missed() -> None:
    async with connect("memory:") as inner, harness(inner) as serving:
        session = await serving.get_or_create("s")
        await session.send("Tell a story.")
        wanted = [event.seq for event in await session.events()]
        store = core_of(session).live.store = FaultyStore(
            inner, [Fail(method="read", call=1, after=True), Fail(method="read", call=2)]
        )
        async with asyncio.timeout(PATIENCE):
            found = await read(session, until="idle")
        assert isinstance(store, FaultyStore)
    assert [one.data["seq"] for one in found if one.name == "event"] == wanted
    troubles = [one.data for one in found if one.name == "trouble"]
    assert [one["code"] for one in troubles] == [StoreUnavailable.code] * 2
    assert {one["problem"] for one in troubles} == {FAILED}  # and not where it is
    assert found[-1].data["reason"] == "finished"


def test_the_end_of_a_stream_does_not_say_where_a_store_is() -> None:
    told = failure(StoreUnavailable(problem="10.0.0.7:5432/shop did not answer"))
    assert (told.code, "10.0.0.7" in str(told)) == (StoreUnavailable.code, False)


async def test_a_reader_that_pauses_where_it_has_caught_up_misses_no_end() -> None:
    async with connect("memory:") as store, harness(store) as serving:
        session = await serving.get_or_create("s")
        await session.post("Tell a story.")
        seen: list[int] = []
        async with asyncio.timeout(PATIENCE):
            async for part in (await begin(session, StreamRequest(until="idle"))).parts():
                if isinstance(part, CaughtUp):
                    await session.wait()  # and the state goes on meanwhile
                seen += [part.seq] if isinstance(part, Event) else []
        assert seen == [event.seq for event in await session.events()]


async def test_what_a_driver_says_that_was_not_told_yet_is_not_shown() -> None:
    async with harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        chunks = OpenStreams(pace=0.0).chunks(await begin(session, StreamRequest()))
        reading = sent(chunks)
        found: list[Sent] = []
        async with asyncio.timeout(PATIENCE), aclosing(chunks):
            await session.send("Tell a story.")
            (message,) = await session.events(kinds=("message.completed",))
            core_of(session).live.say(message.id, "too late")
            await session.send("Good day?")
            while core_of(session).live.state.head not in [one.data.get("seq") for one in found]:
                found.append(await anext(reading))
    assert "too late" not in [one.data["text"] for one in found if one.name == "delta"]
    assert [one.data["kind"] for one in found if one.name == "event"].count("run.finished") == 2
