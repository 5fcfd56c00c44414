"""Models, contexts, summaries and errors that go on for ever: each is cut at a limit or fails with
a code, what was shown until then is kept, and the session can be used after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast import Harness, LogConfig, NewEvent, Store, connect, tool
from holdfast import events as ev
from holdfast.events import Event, key
from holdfast.harness.agents.agent import context
from holdfast.harness.agents.config import ANSWER, CONTEXT
from holdfast.harness.faults import ErrorPolicy
from holdfast.harness.loop.perform import BATCH
from holdfast.harness.session.session import core_of
from holdfast.harness.tools import ToolContext
from holdfast.log.codec import LIMITS
from holdfast.models.port import (
    CallChunk,
    Chunk,
    EndChunk,
    FromUser,
    ModelCall,
    Text,
    TextChunk,
    ThoughtChunk,
)
from holdfast.models.scripted import Fail, Say, Use
from holdfast.stores.memory import MemoryStore
from holdfast.values.delta import Delta

from .kernel.scene import PATIENCE, helper, only, script, serve
from .processes.test_approvals import restored
from .test_odd_models import Odd

AT = key("s")
QUIET = LogConfig(level="silent")


class Endless:
    """A model that says the same again and again when it is told to go on, and else "Better."."""

    def __init__(self, *chunks: Chunk, ref: str = "endless/model") -> None:
        self.ref, self.chunks = ref, chunks
        self.calls: list[ModelCall] = []

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.calls.append(call)
        last = call.messages[-1]
        if isinstance(last, FromUser) and last.content[-1] == Text("Go."):
            while True:
                for chunk in self.chunks:
                    await asyncio.sleep(0)
                    yield chunk
        yield TextChunk("Better.")
        yield EndChunk()


def serving(model: Any, **settings: Any) -> Harness:
    agent = settings.pop("agent", None) or helper()
    return serve(agent, default_model=model, **{"logging": QUIET, **settings})


PIECE = 300_000  # characters; the limit is no multiple of it
TEXT, THOUGHT = TextChunk("x" * PIECE), ThoughtChunk("y" * PIECE)
CALL = CallChunk("look", {"at": "z" * PIECE})


@pytest.mark.parametrize(
    ("chunks", "kept"),
    [
        ([TEXT], ANSWER),
        ([TextChunk("\x01" * PIECE)], ANSWER),
        ([THOUGHT], 0),
        ([CALL], 0),
        ([TextChunk("Well."), CALL], len("Well.")),
        ([TEXT, THOUGHT], ANSWER // 2),
    ],
    ids=["text", "escaped", "thought", "calls", "text and calls", "text and thought"],
)
async def test_an_endless_answer_ends_the_run_and_the_next_message_is_answered(
    chunks: list[Chunk], kept: int
) -> None:
    model = Endless(*chunks)
    async with serving(model) as harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("s")
        stream = session.stream("Go.", limits={"seconds": 5})
        items = [item async for item in stream]
        result = stream.result
        assert (result.status, result.code) == ("failed", "limit_size")
        assert result.error == "The model's answer was too long."
        seen = "".join(i.text for i in items if isinstance(i, Delta) and not i.thought)
        assert result.text == seen
        assert kept <= len(seen) <= ANSWER
        assert session.run.id is None
        assert (await session.send("And now?")).text == "Better."
        shown = sum(len(str(message)) for message in model.calls[-1].messages)
        assert shown < PIECE  # what was cut off is not read again


async def test_a_single_piece_that_is_too_long_is_cut() -> None:
    odd = Odd([TextChunk("x" * (ANSWER + 1)), EndChunk()], [TextChunk("Better."), EndChunk()])
    async with serving(odd) as harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("s")
        result = await session.send("Go.")
        assert (result.code, len(result.text)) == ("limit_size", ANSWER)
        assert (await session.send("And now?")).text == "Better."


async def test_an_answer_as_long_as_allowed_is_completed() -> None:
    odd = Odd([TextChunk("x" * ANSWER), EndChunk()])
    async with serving(odd) as harness, asyncio.timeout(PATIENCE):
        result = await (await harness.get_or_create("s")).send("Go.")
        assert (result.status, len(result.text)) == ("done", ANSWER)


async def test_no_other_model_is_asked_for_an_answer_that_was_too_long() -> None:
    other = script("Other.", ref="other/model")
    settings: dict[str, Any] = {"providers": [other], "fallback_models": ["other/model"]}
    async with serving(Endless(THOUGHT), **settings) as harness, asyncio.timeout(PATIENCE):
        result = await (await harness.get_or_create("s")).send("Go.")
        assert result.code == "limit_size"
        assert other.calls == []


async def left_behind(store: Store, text: str, times: int) -> None:
    """The log of a driver that died while its model was speaking, and the draft of what it said."""
    await store.append(
        AT,
        [
            NewEvent.of("session.created", ev.SessionCreated(agent="helper")),
            NewEvent.of("message.received", ev.MessageReceived(text="Hello.")),
            NewEvent.of("run.started", ev.RunStarted(driver="dead", inputs=[2]), run="r"),
            NewEvent.of("model.called", ev.ModelCalled(model="endless/model"), run="r"),
        ],
        create=True,
    )
    lease = await store.acquire(AT, "dead", ttl=60)
    for n in range(times):
        await store.put_draft(AT, "m", n * len(text), text, fence=lease)
    await store.release(lease)


async def test_a_draft_that_no_event_can_hold_is_cut_by_who_takes_the_run_up() -> None:
    store, piece = MemoryStore(), "\x01" * LIMITS.draft_bytes
    await left_behind(store, piece, 1 + LIMITS.event_bytes // (6 * len(piece)))
    async with serving(Endless(TEXT), store=store) as harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("s")
        assert (await session.wait()).text == "Better."
        [kept] = only(await session.events(), "message.interrupted")
        assert len(kept["text"]) == ANSWER


async def test_a_long_draft_is_written_in_pieces(tmp_path: Any) -> None:
    text = "x" * (2 * LIMITS.draft_bytes)
    gate = asyncio.Event()

    class Slow(Endless):
        async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
            yield TextChunk(text)
            await gate.wait()
            yield EndChunk()

    async with (
        connect(f"sqlite:{tmp_path / 's.db'}") as store,
        serving(Slow(), store=store) as harness,
        asyncio.timeout(PATIENCE),
    ):
        session = await harness.get_or_create("s")
        await session.post("Go.")
        while sum(len(draft.text) for draft in await store.drafts(AT)) < len(text):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        gate.set()
        assert (await session.wait()).text == text


@pytest.mark.parametrize("way", ["model", "function"])
async def test_an_endless_summary_is_none(way: str) -> None:
    def long(messages: Any) -> str:
        return "s" * (ANSWER + 1)

    class Talks(Endless):
        async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
            if "Summarise" in str(call.messages[-1]):
                while True:
                    await asyncio.sleep(0)
                    yield TEXT
            self.calls.append(call)
            yield TextChunk("Yes.")
            yield EndChunk()

    summarise: Any = "on" if way == "model" else long
    model = Talks()
    settings: dict[str, Any] = {"summarise": summarise, "window_turns": 2}
    async with serving(model, **settings) as harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("s")
        for n in range(3):
            assert (await session.send(f"{n}")).text == "Yes."
        [made] = only(await session.events(), "compaction.made")[:1]
        assert not made.get("summary")


@pytest.mark.parametrize("where", ["context", "instructions"])
async def test_a_context_that_is_too_long_fails_the_run_before_the_model_is_called(
    where: str,
) -> None:
    long = [True]

    @context
    def weather(reading: Any) -> str:
        return "r" * (CONTEXT + 1) if long[0] and where == "context" else "rain"

    def instructions(reading: Any) -> str:
        return "i" * (CONTEXT + 1) if long[0] and where == "instructions" else "Help."

    model = script("Better.")
    agent = helper(instructions=instructions, contexts=[weather])
    async with serving(model, agent=agent) as harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("s")
        result = await session.send("Go.")
        assert (result.status, result.code) == ("failed", "context_failed")
        assert model.calls == []
        long[0] = False
        assert (await session.send("And now?")).text == "Better."


async def test_a_context_that_is_too_long_is_skipped_where_it_may_be() -> None:
    @context(required=False)
    def weather(reading: Any) -> str:
        return "r" * (CONTEXT + 1)

    policy = ErrorPolicy(context_failure="skip")
    agent = helper(contexts=[weather])
    async with serving(script("Better."), agent=agent, error_policy=policy) as harness:
        assert (await (await harness.get_or_create("s")).send("Go.")).text == "Better."


async def test_a_tool_cannot_add_a_context_that_is_too_long() -> None:
    @tool
    async def add(context: ToolContext) -> str:
        """Add."""
        acting: Any = context
        await acting.add_context("c" * (CONTEXT + 1), scope="session")
        return "added"

    model = script(Say("So.", calls=[Use("add")]), "Better.")
    async with serving(model, agent=helper(tools=[add])) as harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("s")
        assert (await session.send("Go.")).text == "Better."
        [ended] = only(await session.events(), "tool.finished")
        assert (ended["outcome"], str(CONTEXT) in ended["result"]["error"]["message"]) == (
            "failed",
            True,
        )


async def test_an_error_with_endless_words_is_cut() -> None:
    policy = ErrorPolicy(expose_internal_errors=True)
    model = script(Fail(ValueError("e" * (LIMITS.event_bytes + 1))))
    async with serving(model, error_policy=policy) as harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("s")
        result = await session.send("Go.")
        assert (result.status, result.code) == ("failed", "model_failed")
        assert len(result.error or "") < LIMITS.event_bytes // 1000


async def test_an_abort_ends_a_run_with_more_open_calls_than_one_append_holds() -> None:
    @tool
    def look(n: int) -> str:
        """Look."""
        return "seen"

    asks = script(Say("So.", calls=[Use("look", n=1)]), "Done.")
    async with serving(asks, agent=helper(tools=[look])) as harness:
        session = await harness.get_or_create("s")
        await session.send("Go.")
        events = await session.events()
    begun = next(event for event in events if event.kind == "tool.started")
    made = events[: begun.seq]
    outer = begun.json()["call"]
    for n in range(1, LIMITS.append_events + BATCH):
        call = ev.Call(id=f"{outer}.{n}", name="look", arguments={"n": n})
        nested = NewEvent.of("tool.nested", ev.ToolNested(call=call, parent=outer), run=begun.run)
        made.append(nested.numbered(begun.seq + n, begun.at))
    store = await restored(made)
    async with (
        serving(asks, agent=helper(tools=[look]), store=store) as harness,
        asyncio.timeout(PATIENCE),
    ):
        session = await harness.get_or_create("s")
        await session.abort()
        assert (await session.wait()).status == "aborted"
        ended = [e.json()["call"] for e in await session.events() if e.kind == "tool.finished"]
        assert len(ended) == len(set(ended)) == LIMITS.append_events + BATCH


async def test_many_large_timers_that_are_due_at_once_all_arrive() -> None:
    text = "t" * (LIMITS.append_bytes // 4)
    store = MemoryStore()
    async with serving(script("Heard."), store=store) as harness:
        await harness.get_or_create("s")
    timers = [NewEvent.of("timer.set", ev.TimerSet(id=f"t{n}", at=1, text=text)) for n in range(5)]
    for timer in timers:
        await store.append(AT, [timer])
    async with (
        serving(script("Heard."), store=store, window_tokens=1 << 40) as harness,
        asyncio.timeout(2 * PATIENCE),
    ):
        session = await harness.get_or_create("s")
        await core_of(session).live.until(lambda: not core_of(session).live.state.timers)
        came = [e for e in await session.events() if e.kind == "message.received"]
        assert len(came) == 5
        assert all(isinstance(event, Event) for event in came)
