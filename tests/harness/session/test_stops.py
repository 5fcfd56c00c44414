"""A run from its beginning to its end, as a listener hears it, and the ways in which it is stopped
before that: what was said is kept, nothing of it comes later, and the next one is its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast import Event, ModelUnavailable, ToolContext, Trouble, tool
from holdfast.models import Say, ScriptedModel, Use
from holdfast.models.port import Chunk, EndChunk, ModelCall, TextChunk
from holdfast.models.scripted import Fail
from holdfast.stores.memory import MemoryStore
from holdfast.values.delta import Delta
from holdfast.values.stream_items import Item

from ..kernel.scene import (
    PATIENCE,
    Gate,
    Slow,
    helper,
    kinds,
    names,
    only,
    read,
    script,
    serve,
    until,
)


@tool
async def look(where: str) -> str:
    """Look somewhere."""
    return f"saw {where}"


@tool(approval="auto")
async def slow(context: ToolContext) -> str:
    """Tell how it goes."""
    await context.progress({"half": True})
    return "slow"


# In order


@pytest.mark.parity("mastra-session", 70)
async def test_a_turn_of_text_in_order() -> None:
    async with serve(helper(), "Hello there.") as harness:
        session = await harness.get_or_create("s")
        items = [item async for item in session.stream("hi")]
        assert names(items) == [
            "message.received",
            "run.started",
            "model.called",
            "delta",
            "context.built",
            "message.completed",
            "run.finished",
        ]
        deltas = [item for item in items if isinstance(item, Delta)]
        assert "".join(delta.text for delta in deltas) == "Hello there."
        [said] = [item for item in items if getattr(item, "kind", "") == "message.completed"]
        assert {delta.message for delta in deltas} == {said.id}  # type: ignore[union-attr]


@pytest.mark.parity("mastra-session", 71)
async def test_a_turn_with_tools_in_order() -> None:
    steps: list[Any] = [Say("I look.", calls=[Use("look", where="up"), Use("slow")]), "I saw it."]
    async with serve(helper(tools=[look, slow]), *steps) as harness:
        session = await harness.get_or_create("s")
        items = [item async for item in session.stream("go")]
        order = names(items)
        head = ["message.received", "run.started", "model.called", "delta", "context.built"]
        begun = ["message.completed", "tool.started", "tool.started"]
        tail = ["model.called", "delta", "message.completed", "run.finished"]
        assert order[: len(head) + 3] == head + begun
        assert order[-len(tail) :] == tail
        between = order[len(head) + 3 : -len(tail)]
        assert sorted(between) == ["progress.reported", "tool.finished", "tool.finished"]
        shown = session.display.get().tools.values()
        assert [(one.name, one.status, one.progress) for one in shown] == [
            ("look", "done", None),
            ("slow", "done", {"half": True}),
        ]


@pytest.mark.parity("mastra-session", 84)
async def test_listeners_are_told_that_another_model_answers() -> None:
    away = Fail(ModelUnavailable(model="down/m", problem="secret words of the vendor"))
    down, up = script(away, ref="down/m"), script("Here.", ref="up/m")
    settings: dict[str, Any] = {"default_model": "down/m", "fallback_models": ["up/m"]}
    async with serve(helper(), providers=[down, up], **settings) as harness:
        session = await harness.get_or_create("s")
        items = [item async for item in session.stream("hi")]
        [told] = [item for item in items if isinstance(item, Trouble)]
        assert (told.code, "falling back to up/m" in told.problem) == ("model_unavailable", True)
        assert "secret" not in told.problem
        assert session.display.get().message.model == "up/m"  # type: ignore[union-attr]


# Those who are told of sessions


@pytest.mark.parity("mastra-session", 13, 14)
async def test_listeners_are_called_in_their_order_before_the_session_is_given_out() -> None:
    told: list[str] = []

    def listening(name: str) -> Any:
        def listen(what: str, id: str, value: Any) -> None:
            if what == "session.created":
                told.append(name)
                if name == "bad":
                    raise RuntimeError("no")

        return listen

    async with serve(helper(), "hi") as harness:
        leave = [harness.subscribe(listening(name)) for name in ("one", "bad", "two", "two")]
        session = await harness.get_or_create("s")
        assert told == ["one", "bad", "two", "two"]
        assert (await session.send("hi")).text == "hi"  # the fault of one is nobody else's
        leave[2]()
        await harness.get_or_create("t")
        assert told[4:] == ["one", "bad", "two"]


# Stopping


class Endless:
    """A model, or a tool, that does not end by itself; `deaf`: not even when it is told to."""

    ref = "endless/model"

    def __init__(self, *, deaf: bool = False) -> None:
        self.deaf, self.begun = deaf, Gate()
        self.done, self.over = asyncio.Event(), asyncio.Event()

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        if read(call)[-1] == "user: again":
            yield TextChunk("Fine.")
            yield EndChunk()
            return
        yield TextChunk("Once ")
        await self.hang()
        yield TextChunk("upon a time.")
        yield EndChunk()

    async def hang(self) -> None:
        self.begun.met.set()
        try:
            while not self.done.is_set():
                try:
                    await self.done.wait()
                except asyncio.CancelledError:
                    if not self.deaf:
                        raise
        finally:
            self.over.set()


@pytest.mark.parity("mastra-session", 100, 103)
async def test_an_abort_in_the_middle_of_a_text_keeps_what_was_said() -> None:
    model = Endless()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("tell"))
        await model.begun.someone()
        await session.abort("enough")
        after = asyncio.create_task(session.send("again"))  # right behind it
        result = await sending
        assert (result.status, result.text) == ("aborted", "Once ")
        [kept] = only(await session.events(), "message.interrupted")
        assert kept["text"] == "Once "
        async with asyncio.timeout(PATIENCE):
            answer = await after
        assert (answer.status, answer.text) == ("done", "Fine.")
        assert answer.run != result.run


@pytest.mark.parity("mastra-session", 101, 102, 105)
@pytest.mark.parametrize(("what", "deaf"), [("model", False), ("tool", False), ("tool", True)])
async def test_an_abort_ends_what_hangs_and_nothing_of_it_comes_later(
    what: str, deaf: bool
) -> None:
    hanging = Endless(deaf=deaf)

    @tool
    async def hang() -> str:
        """Hang."""
        await hanging.hang()
        return "late words"

    calling = ScriptedModel.by_input({"go": [Say("Once ", calls=[Use("hang")])], "again": "Fine."})
    model: Any = hanging if what == "model" else calling
    async with serve(helper(tools=[hang]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await hanging.begun.someone()
        await session.abort()
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "aborted"
            assert (await session.send("again")).text == "Fine."
        events = await session.events()
        hanging.done.set()  # what did not listen says the rest now, when nobody asks for it
        async with asyncio.timeout(PATIENCE):
            await hanging.over.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert await session.events() == events
        shown = session.display.get()
        assert shown.message is not None
        assert (shown.message.text, shown.phase, shown.error) == ("Fine.", "idle", None)
        texts = [message.text for message in await session.transcript()]
        assert "late words" not in str(texts)
        assert "upon a time" not in str(texts)


@pytest.mark.parity("mastra-session", 104)
async def test_an_abort_of_nothing_changes_nothing_and_what_comes_later_is_seen() -> None:
    store = MemoryStore()
    settings: dict[str, Any] = {"store": store, "default_model": script("hi", repeat=True)}
    async with serve(helper(), **settings) as one, serve(helper(), **settings) as other:
        session = await one.get_or_create("s")
        before = await session.events()
        listener = session.subscribe()
        await session.abort()
        await session.abort("really")
        assert await session.events() == before
        assert (session.run.id, session.display.get().error) == (None, None)
        await (await other.get_or_create("s")).send("from elsewhere")
        async with asyncio.timeout(PATIENCE):
            await until_kind(listener, "run.finished")
        assert session.display.get().message.text == "hi"  # type: ignore[union-attr]


async def until_kind(listener: Any, kind: str) -> None:
    items: AsyncGenerator[Item, None] = aiter(listener)
    async for item in items:
        if isinstance(item, Event) and item.kind == kind:
            break
    await items.aclose()
    listener.close()


@pytest.mark.parity("mastra-session", 113)
async def test_one_who_steers_is_answered_and_the_queue_stays() -> None:
    model = Slow(quick=["rather this", "later"])
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        first = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        await session.follow_ups.add("later")
        steering = asyncio.create_task(session.send("rather this", busy="steer"))
        await until(lambda: session.follow_ups.count == 2)
        model.gate.open()
        async with asyncio.timeout(PATIENCE):
            steered = await steering
            assert (steered.status, steered.text) == ("done", "quick rather this")
            assert (await first).run == steered.run
            assert (await session.wait()).text == "quick later"
        said = [(m.role, m.text) for m in await session.transcript()]
        assert ("assistant", "Let me see.") in said  # and what had been said was not cut off
        assert (await kinds(session)).count("run.started") == 2
