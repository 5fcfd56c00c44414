"""Messages that come while a run is going: in line, joining it, ending it, or refused."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from holdfast import InvalidValue, NewEvent, QueueFull, SessionBusy, ToolContext, tool
from holdfast.harness.session.session import Session, core_of
from holdfast.models.port import ModelCall
from holdfast.models.scripted import Fail, Say, ScriptedModel, Use
from holdfast.stores.memory import MemoryStore
from holdfast.testing import FaultyStore
from holdfast.testing.faults import Stall

from .scene import PATIENCE, Gate, Slow, helper, kinds, only, read, script, serve, until


def echo(call: ModelCall) -> str:
    return f"re {read(call)[-1].removeprefix('user: ')}"


@pytest.mark.parity("user-demand", 69)
@pytest.mark.parity("harness-kernel", 69)
async def test_messages_are_answered_in_the_order_in_which_they_came() -> None:
    async with serve(helper(), echo) as harness:
        session = await harness.get_or_create("s")
        results = await asyncio.gather(*(session.send(str(n)) for n in range(5)))
        assert [result.text for result in results] == [f"re {n}" for n in range(5)]
        runs = [event.run for event in await session.events(kinds=("run.started",))]
        assert runs == [result.run for result in results]


@pytest.mark.parity("harness-kernel", 70)
async def test_a_failure_does_not_hold_the_next_up() -> None:
    def step(call: ModelCall) -> str | Fail:
        text = echo(call)
        return Fail(RuntimeError("no")) if text.endswith("bad") else text

    async with serve(helper(), step) as harness:
        session = await harness.get_or_create("s")
        bad, good = await asyncio.gather(session.send("bad"), session.send("good"))
        assert (bad.status, good.status, good.text) == ("failed", "done", "re bad | good")


@pytest.mark.parity("harness-kernel", 71)
async def test_interrupting_ends_the_run_at_the_next_word_and_keeps_what_was_said() -> None:
    model = Slow(quick=["stop"])
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        first = asyncio.create_task(session.send("tell me all"))
        await model.gate.someone()
        second = await session.send("stop", busy="interrupt")
        cut = await first
        assert (cut.status, cut.code, cut.text) == ("interrupted", "interrupted", "Let me")
        assert (second.status, second.text) == ("done", "quick stop")
        texts = [(m.text, m.interrupted) for m in await session.transcript()]
        assert ("Let me", True) in texts
    assert read(model.calls[1]) == ["user: tell me all", "model: Let me", "user: stop"]


class Work:
    """A tool that waits at a gate, and its agent."""

    def __init__(self) -> None:
        self.gate = Gate()

        @tool
        async def work() -> str:
            """Work."""
            await self.gate.pass_through()
            return "worked"

        self.agent = helper(tools=[work])


@pytest.mark.parity("harness-kernel", 71, 72)
async def test_steering_joins_the_run_behind_the_tool_and_keeps_its_result() -> None:
    work = Work()
    model = ScriptedModel([Say(calls=[Use("work")]), echo], repeat=True)
    async with serve(work.agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        first = asyncio.create_task(session.send("go"))
        await work.gate.someone()
        second = asyncio.create_task(session.send("rather this", busy="steer"))
        await until(lambda: len(session.queue) == 1)
        work.gate.open()
        one, two = await first, await second
        assert one.run == two.run
        assert one.text == two.text == "re rather this"
        events = await session.events()
        (ended,) = only(events, "tool.finished")
        assert (ended.get("outcome", "ok"), ended["result"]) == ("ok", "worked")
        assert work.gate.passed == 1
    assert read(model.calls[1]) == [
        "user: go",
        "model:  [work]",
        "tools: worked",
        "user: rather this",
    ]


@pytest.mark.parity("harness-kernel", 72)
async def test_a_message_that_queues_leaves_the_run_alone() -> None:
    work = Work()
    async with serve(work.agent, Say(calls=[Use("work")]), "all done") as harness:
        session = await harness.get_or_create("s")
        first = asyncio.create_task(session.send("go"))
        await work.gate.someone()
        second = asyncio.create_task(session.send("next"))
        await until(lambda: len(session.queue) == 1)
        work.gate.open()
        one, two = await first, await second
        assert one.run != two.run
        assert one.text == two.text == "all done"
        outcomes = [e.get("outcome", "ok") for e in only(await session.events(), "tool.finished")]
        assert outcomes == ["ok", "ok"]


@tool(approval="ask")
async def pay() -> str:
    """Pay."""
    return "paid"


def paying(call: ModelCall) -> Say | str:
    """Pays first, then answers."""
    return Say(calls=[Use("pay")]) if read(call)[-1] == "user: pay" else echo(call)


@pytest.mark.parity("harness-kernel", 73)
async def test_a_message_waits_while_a_person_is_asked() -> None:
    model = ScriptedModel([paying], repeat=True)
    async with serve(helper(tools=[pay]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        asked = await session.send("pay")
        assert asked.status == "waiting"
        later = await session.send("and?")
        assert (later.status, later.run) == ("queued", None)
        assert session.status.phase == "waiting_approval"
        assert session.status.queued == 1
        await session.approve()
        assert (await session.wait()).text == "re and?"
        answers = [m.text for m in await session.transcript(roles=("assistant",))]
        assert answers == ["", "re tools: paid", "re and?"]


@pytest.mark.parity("harness-kernel", 73)
async def test_steering_while_a_person_is_asked_takes_the_place_of_the_answer() -> None:
    model = ScriptedModel([paying], repeat=True)
    async with serve(helper(tools=[pay]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("pay")
        result = await session.send("rather not", busy="steer")
        assert (result.status, result.text) == ("done", "re rather not")
        assert await session.pending() == []
        (ended,) = only(await session.events(), "tool.finished")
        assert (ended["outcome"], ended["code"]) == ("cancelled", "superseded")


@pytest.mark.parity("harness-kernel", 73)
async def test_interrupting_while_a_person_is_asked_ends_the_run() -> None:
    model = ScriptedModel([paying], repeat=True)
    async with serve(helper(tools=[pay]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        first = await session.send("pay")
        second = await session.send("stop", busy="interrupt")
        assert (second.status, second.text) == ("done", "re stop")
        assert second.run != first.run
        assert await session.pending() == []
        (ended,) = only(await session.events(), "tool.finished")
        assert ended["outcome"] == "cancelled"


@pytest.mark.parity("harness-kernel", 74)
async def test_a_stream_that_is_cancelled_ends_its_run() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        stream = session.stream("go")

        async def follow() -> None:
            async for _ in stream:
                pass

        reader = asyncio.create_task(follow())
        await model.gate.someone()
        await stream.cancel("enough")
        await reader
        result = stream.result
        assert (result.status, result.code, result.text) == ("aborted", "aborted", "Let me")
        (request,) = only(await session.events(), "abort.requested")
        assert request["reason"] == "enough"
        assert session.status.phase == "idle"


async def _run(stream: object) -> None:
    async for _ in stream:  # type: ignore[attr-defined]
        pass


@pytest.mark.parity("harness-kernel", 75, 76)
async def test_cancelling_what_waits_in_line_leaves_the_run_alone() -> None:
    model = Slow(quick=["third"])
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        streams = [session.stream(text) for text in ("first", "second", "third")]
        readers = []
        for stream in streams:
            readers.append(asyncio.create_task(_run(stream)))
            await until(lambda: stream.seq is not None)  # noqa: B023
        await model.gate.someone()
        await streams[1].cancel()
        await readers[1]
        assert streams[1].result.status == "removed"
        model.gate.open()
        await asyncio.gather(*readers)
        assert [s.result.status for s in streams] == ["done", "removed", "done"]
        assert (await kinds(session)).count("abort.requested") == 0


@pytest.mark.parity("harness-kernel", 75)
async def test_cancelling_a_stream_whose_run_is_over_leaves_the_next_alone() -> None:
    model = Slow(quick=["first"])
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        stream = session.stream("first")
        items = aiter(stream)
        await anext(items)  # and nobody reads on
        await until(lambda: session.status.phase == "idle")
        second = asyncio.create_task(session.send("second"))
        await model.gate.someone()
        await stream.cancel()
        model.gate.open()
        assert (await second).status == "done"
        async for _ in items:
            pass
        assert stream.result.status == "done"


@pytest.mark.parity("harness-kernel", 74)
async def test_cancelling_a_stream_whose_run_waits_for_a_person_ends_it() -> None:
    model = ScriptedModel([paying], repeat=True)
    async with serve(helper(tools=[pay]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        stream = session.stream("pay")
        await _run(stream)
        assert stream.result.status == "waiting"
        await stream.cancel()
        assert (await session.wait()).status == "aborted"
        assert await session.pending() == []


@pytest.mark.parity("harness-kernel", 74)
async def test_a_stream_that_is_cancelled_before_it_is_read_sends_nothing() -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        stream = session.stream("go")
        await stream.cancel()
        await _run(stream)
        assert stream.result.status == "removed"
        assert await session.transcript() == []


@pytest.mark.parity("harness-kernel", 76)
async def test_a_caller_that_goes_away_stops_nothing() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        waiting = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        model.gate.open()
        assert (await session.wait()).text == "Let me see."


@pytest.mark.parity("harness-kernel", 28)
async def test_an_abort_stops_a_tool_that_is_running() -> None:
    gate = Gate()
    seen: list[str] = []

    @tool
    async def endless(context: ToolContext) -> str:
        """Never ends."""
        try:
            await gate.pass_through()
        except asyncio.CancelledError:
            seen.append(f"cancelled, told {context.aborted.is_set()}")
            raise
        return "never"

    @tool
    async def quick() -> str:
        """Ends at once."""
        return "quick"

    calls = [Use("endless"), Use("quick")]
    async with serve(helper(tools=[endless, quick]), Say(calls=calls), "never") as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await gate.someone()
        await until(lambda: len(core_of(session).live.state.calls) == 1)
        await session.abort()
        async with asyncio.timeout(5):
            result = await session.wait()
        assert result.status == "aborted"
        assert seen == ["cancelled, told True"]
        ended = {
            e["call"]: e.get("outcome", "ok") for e in only(await session.events(), "tool.finished")
        }
        assert sorted(ended.values()) == ["cancelled", "ok"]


@pytest.mark.parity("harness-kernel", 28)
async def test_a_tool_that_takes_too_long_is_stopped_and_the_model_is_told() -> None:
    @tool(timeout=0.05)
    async def endless() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return "never"

    model = script(Say(calls=[Use("endless")]), "ok")
    async with serve(helper(tools=[endless]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "ok"
        (ended,) = only(await session.events(), "tool.finished")
        assert (ended["outcome"], ended["code"]) == ("failed", "tool_timeout")
    assert "did not finish within 0.05 s" in read(model.calls[1])[-1]


async def test_a_message_is_refused_while_anything_goes_on() -> None:
    model = Slow(quick=["later"])
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        with pytest.raises(SessionBusy):
            await session.send("now", busy="reject")
        model.gate.open()
        await session.wait()
        assert (await session.send("later", busy="reject")).status == "done"
        with pytest.raises(InvalidValue, match="busy"):
            await session.send("x", busy="shout")  # type: ignore[arg-type]
        texts = [m.text for m in await session.transcript(roles=("user",))]
        assert texts == ["go", "later"]


async def test_the_queue_is_bounded() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        for n in range(100):
            await session.post(str(n))
        with pytest.raises(QueueFull):
            await session.post("one too many")
        await session.queue.remove(*[item.seq for item in await session.queue.list()])
        await session.abort()


async def test_what_waits_can_be_edited_moved_and_taken_out() -> None:
    model = Slow(quick=["c", "a", "B"])
    async with serve(helper(), default_model=model) as harness:
        session: Session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        a, b, c, d = [await session.post(text) for text in "abcd"]
        await session.queue.reorder([c, a])
        await session.queue.edit(b, "B")
        await session.queue.remove(d)
        assert [(q.seq, q.text) for q in await session.queue.list()] == [
            (c, "c"),
            (a, "a"),
            (b, "B"),
        ]
        with pytest.raises(InvalidValue, match="is not in the queue"):
            await session.queue.remove(d)
        model.gate.open()
        await session.wait()
    assert [read(call)[-1] for call in model.calls[1:]] == ["user: c", "user: a", "user: B"]


async def test_people_who_never_pause_do_not_keep_a_run_from_beginning() -> None:
    pauses = itertools.cycle((0.004, 0.007))

    class Far(MemoryStore):
        async def append(self, key: Any, events: Any, **rest: Any) -> Any:
            done = await super().append(key, events, **rest)
            if events[0].kind == "message.received":  # the answer takes a while, each another
                await asyncio.sleep(next(pauses))
            return done

    model = ScriptedModel(["Hi."], repeat=True)
    async with serve(helper(), default_model=model, store=Far()) as harness:
        session = await harness.get_or_create("s")

        async def write() -> None:
            while core_of(session).live.state.run is None:
                await session.post("more")  # QueueFull: nobody took any up

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(write(), write(), write())
        run = core_of(session).live.state.run
        assert run is not None
        assert run.seq < 100


async def test_a_message_that_comes_as_a_run_ends_does_not_take_its_end_apart() -> None:
    store, model = FaultyStore(MemoryStore()), Slow(quick=["go"])
    async with serve(helper(), default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        stall = Stall(method="append", call=store.calls["append"] + 2)  # of the answer
        store.plan.append(stall)
        await session.post("go")
        async with asyncio.timeout(PATIENCE):
            await stall.reached.wait()
            other = NewEvent.of("message.received", {"text": "and then?"})
            await store.inner.append(core_of(session).live.key, [other])
            before = store.calls["append"]
            stall.go.set()
            await model.gate.someone()  # in the run of the other message
        found = await kinds(session)
        assert found.index("run.finished") == found.index("message.completed") + 1
        assert store.calls["append"] == before + 2  # the same once more, and the next run's
        model.gate.open()
