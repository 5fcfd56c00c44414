"""Turns as a display shows them: messages and their ids, words that come between, faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast import Attempts, ErrorPolicy, Event, Harness, Retry, Trouble
from holdfast.harness.session.session import core_of
from holdfast.models import Say, ScriptedModel, Use
from holdfast.models.port import Chunk, EndChunk, ModelCall, TextChunk
from holdfast.stores import connect
from holdfast.testing import FaultyStore
from holdfast.testing.faults import Fail as StoreFail
from holdfast.values.delta import Delta
from holdfast.values.display import Display

from ..kernel.scene import Gate, Slow, helper, read, until
from .stage import says, workshop


def served(*steps: Any, **settings: Any) -> Harness:
    settings.setdefault("default_model", ScriptedModel(steps, per_turn=True))
    return Harness(settings.pop("agent", None) or workshop(), **settings)


@pytest.mark.parity("mastra-session", 77, 78, 79, 80)
async def test_each_message_has_one_id_in_flight_and_in_the_log() -> None:
    steps = [says(Use("look", path="a"), text="First I look."), says(text="Then I tell.")]
    async with served(*steps) as harness:
        session = await harness.get_or_create("s")
        items = [item async for item in session.stream("go")]
        deltas: dict[str, str] = {}
        for item in items:
            if isinstance(item, Delta):
                deltas[item.message] = deltas.get(item.message, "") + item.text
        log = await session.events()
        stored = {e.id: e.json()["text"] for e in log if e.kind == "message.completed"}
        assert deltas == stored
        assert list(stored.values()) == ["First I look.", "Then I tell."]
        echo = next(item for item in items if isinstance(item, Event))
        assert (echo.kind, echo.json()["text"]) == ("message.received", "go")
        assert echo in log  # what is shown of one's own words is what is stored


class Interrupted:
    """A model that waits in its first answer until it is told to go on."""

    ref = "slow/interrupted"

    def __init__(self) -> None:
        self.gate, self.prompts = Gate(), list[list[str]]()

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.prompts.append(read(call))
        if len(self.prompts) == 1:
            yield TextChunk("One ")
            await self.gate.pass_through()
            yield TextChunk("two.")
        else:
            yield TextChunk("Three.")
        yield EndChunk()


@pytest.mark.parity("mastra-session", 81)
async def test_words_that_come_between_part_the_messages() -> None:
    model = Interrupted()
    async with served(default_model=model, agent=helper()) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        shown: list[Display] = []
        core_of(session).live.watchers.append(lambda _: shown.append(session.display.get()))
        joined = asyncio.create_task(session.send("and this", busy="steer"))
        await until(lambda: session.follow_ups.count == 1)
        model.gate.open()
        assert (await sending).run == (await joined).run  # one run, and one end
        texts = [display.message.text for display in shown if display.message is not None]
        assert texts[0] == "One "
        assert texts[-1] == "Three."
        assert "One two." in texts
        ids = {display.message.id for display in shown if display.message is not None}
        assert len(ids) == 2
        assert model.prompts[1][-2:] == ["model: One two.", "user: and this"]


@pytest.mark.parity("mastra-session", 83)
@pytest.mark.parametrize("reason", ["length", "filtered", "other"])
async def test_why_a_message_stopped_is_shown(reason: Any) -> None:
    async with served(Say("So far", reason=reason)) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert (result.status, result.text, result.reason) == ("done", "So far", reason)
        message = session.display.get().message
        assert message is not None
        assert (message.reason, message.model) == (reason, "scripted/demo")


class Broken:
    """A model whose stream raises something of its own, once."""

    ref = "broken/model"

    def __init__(self) -> None:
        self.calls = 0

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.calls += 1
        yield TextChunk("Well, ")
        if self.calls == 1:
            raise KeyError("choices")
        yield TextChunk("fine.")
        yield EndChunk()


@pytest.mark.parity("mastra-session", 86)
async def test_a_stream_that_raises_ends_its_run_and_no_other() -> None:
    async with served(default_model=Broken(), agent=helper()) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        display = session.display.get()
        assert result.status == "failed"
        assert display.error is not None
        assert display.message is not None
        assert (display.message.text, display.message.done) == ("Well, ", True)
        assert (session.run.id, session.run.is_running, display.running) == (None, False, False)
        assert (await session.send("again")).text == "Well, fine."
        assert session.display.get().error is None


@pytest.mark.parity("mastra-session", 112)
async def test_a_follow_up_that_cannot_be_begun_stays_first() -> None:
    store, model = FaultyStore(await connect("memory:")), Slow(quick=["next", "last"])
    policy = ErrorPolicy(retry=Retry(storage=Attempts(3, backoff=0)))
    settings: dict[str, Any] = {"store": store, "error_policy": policy, "ttl": 0.1}
    async with served(default_model=model, agent=helper(), **settings) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        listener = session.subscribe()
        await session.follow_ups.add("next")
        await session.follow_ups.add("last")
        done = store.calls["append"]
        store.plan += [StoreFail(method="append", call=done + n) for n in (2, 3, 4)]
        waiting: list[list[str]] = []

        async def watch() -> None:
            async for item in listener:
                if isinstance(item, Trouble):
                    waiting.append([queued.text for queued in await session.follow_ups.list()])

        watching = asyncio.create_task(watch())
        model.gate.open()
        assert (await sending).status == "done"
        await until(lambda: session.follow_ups.is_empty and session.run.id is None)
        listener.close()
        await watching
        assert waiting[0] == ["next", "last"]
        assert [read(call)[-1] for call in model.calls] == ["user: go", "user: next", "user: last"]
    await store.aclose()
