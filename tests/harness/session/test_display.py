"""The display of a live session: now, as it changes, and after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Harness, HoldfastError, RunLimits, SessionNotFound
from holdfast.events import Event
from holdfast.harness.session.session import Session, core_of
from holdfast.models import Fail, Say, ScriptedModel, Use
from holdfast.models.port import Chunk, EndChunk, ModelCall, TextChunk, ThoughtChunk
from holdfast.stores import connect
from holdfast.values.delta import Delta
from holdfast.values.display import Display, reduce

from ..kernel.scene import PATIENCE, Gate, Slow, read, until
from .stage import USAGE, WORK, says, worked, workshop


def served(*steps: Any, **settings: Any) -> Harness:
    settings.setdefault("default_model", ScriptedModel(steps or WORK, per_turn=True))
    return Harness(settings.pop("agent", None) or workshop(), **settings)


@pytest.mark.parity("mastra-session", 67, 73, 74, 142, 147, 148)
async def test_it_shows_all_and_the_same_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'd.db'}"
    async with served(store=url) as harness:
        session = await harness.get_or_create("s")
        await session.mode.switch("build")
        waiting = await session.send("go")
        middle = session.display.get()
        assert (middle.phase, middle.running, middle.run) == (
            "waiting_approval",
            False,
            waiting.run,
        )
        assert [item.what for item in middle.pending.values()] == [
            ask.what for ask in waiting.pending
        ]
        assert [item.call for item in middle.pending.values()] == [
            ask.call for ask in waiting.pending
        ]
        tools = {shown.name: shown for shown in middle.tools.values()}
        assert (tools["pay"].status, tools["pay"].arguments) == ("waiting", {"amount": 1})
        assert (tools["write"].status, tools["write"].result) == ("done", {"path": "inner.txt"})
        assert tools["write"].parent is not None
        assert tools["write"].progress == {"written": 1}
        assert (tools["break_down"].status, tools["spoil"].status) == ("failed", "failed")
        assert "handle came off" in str(tools["break_down"].error)
    async with served(store=url) as harness:
        session = await harness.get_or_create("s")
        assert session.display.get() == middle
        for ask in waiting.pending:
            await session.answer("red", ask.id) if ask.what == "question" else await session.deny(
                ask.id
            )
            assert ask.id not in session.display.get().pending
        await session.wait()
        after = session.display.get()
    async with served(store=url) as harness:
        session = await harness.get_or_create("s")
        head = core_of(session).live.state.head
        assert session.display.get() == after
        assert core_of(session).live.state.head == head  # nothing was written for it
    assert after.files.keys() == {"a.txt", "inner.txt"}
    assert after.files["a.txt"].operations == ("created", "modified")
    assert [task.status for task in after.tasks] == ["completed"]
    assert [task.status for task in after.previous_tasks] == ["pending"]
    assert after.usage.input_tokens == 10 * 5
    assert after.usage.total_tokens == 15 * 5
    assert after.message is not None
    assert (after.message.text, after.phase, after.pending) == ("All done.", "idle", {})
    assert (after.mode, after.session, after.thread) == ("build", "s", "main")
    assert {shown.status for shown in after.tools.values()} == {"done", "failed", "denied"}


async def test_it_agrees_with_the_status_after_every_event() -> None:
    async with served() as harness:
        session = await harness.get_or_create("s")
        seen: list[tuple[Any, ...]] = []

        def look(_: Event) -> None:
            display, status = session.display.get(), session.status
            assert (display.phase, display.mode, display.model) == (
                status.phase,
                status.mode,
                status.model,
            )
            assert (display.head, display.queued) == (status.head, status.queued)
            seen.append((status.phase, status.model))

        core_of(session).live.watchers.append(look)
        await session.model.set("scripted/demo")
        await worked(session)
        await session.model.clear()
        await session.send("again", model="scripted/demo")
        assert {"waiting_model", "running_tool", "waiting_approval", "idle"} <= {
            phase for phase, _ in seen
        }


@pytest.mark.parity("mastra-session", 143, 145)
async def test_one_who_reduces_what_he_hears_has_the_same_display() -> None:
    async with served() as harness:
        session = await harness.get_or_create("s")
        display, listener = session.display.get(), session.subscribe()
        pairs: list[tuple[int, Display]] = []

        async def follow() -> None:
            nonlocal display
            async for item in listener:
                if isinstance(item, Event | Delta):
                    display = reduce(display, item)
                    pairs.append((display.head, display))

        following = asyncio.create_task(follow())
        log = await worked(session)
        await until(lambda: display.head == log[-1].seq)
        listener.close()
        await following
        assert display == session.display.get()
        heads = [head for head, _ in pairs]
        assert heads == sorted(heads)
        assert {event.seq for event in log[2:]} <= set(heads)  # one after each event
        assert all(head == shown.head for head, shown in pairs)  # and each stayed as it was


class Thoughtful:
    """A model that thinks, says something, and waits at a gate in between."""

    ref = "slow/thoughtful"

    def __init__(self) -> None:
        self.gate = Gate()

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        yield ThoughtChunk("Hm")
        yield ThoughtChunk("m.")
        yield TextChunk("One ")
        yield TextChunk("two")
        await self.gate.pass_through()
        yield TextChunk(" three")
        yield EndChunk(usage=dict(USAGE))


@pytest.mark.parity("mastra-session", 72, 77)
async def test_a_message_in_flight_is_shown_as_far_as_it_has_come() -> None:
    model = Thoughtful()
    async with served(default_model=model, agent=workshop(modes=[])) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        flying = session.display.get()
        assert flying.message is not None
        assert (flying.message.text, flying.message.thought) == ("One two", "Hmm.")
        assert (flying.running, flying.message.done) == (True, False)
        grown = reduce(flying, Delta(flying.message.id, 7, "!"))
        assert grown.message is not None
        assert grown.message.text == "One two!"
        model.gate.open()
        await sending
        whole = session.display.get().message
        assert whole is not None
        assert (whole.text, whole.thought, whole.done) == ("One two three", "Hmm.", True)
        assert whole.id == flying.message.id  # the id that was streamed is the id that is stored
        assert whole.id in [
            event.id for event in await session.events(kinds=("message.completed",))
        ]
        assert flying.message.text == "One two"


async def shown(session: Session, last: Any, found: list[Display]) -> None:
    async with asyncio.timeout(PATIENCE), contextlib.aclosing(session.display.changes()) as changes:
        async for display in changes:
            found.append(display)
            if last(display):
                return


@pytest.mark.parity("mastra-session", 144, 149)
@pytest.mark.parametrize("words", [500, 8_000])
async def test_a_burst_is_a_few_displays_and_the_last_is_exact(words: int) -> None:
    text = "word " * words
    async with served(says(text=text)) as harness:
        session = await harness.get_or_create("s")
        found: list[Display] = []
        showing = asyncio.create_task(
            shown(session, lambda d: d.head > 2 and d.phase == "idle", found)
        )
        await until(lambda: found)
        assert found[0].message is None  # the first comes at once
        await session.send("go")
        await showing
        assert found[-1] == session.display.get()
        message = found[-1].message
        assert message is not None
        assert message.text == text
        assert len(found) < words
        assert "".join(tails(found)) == text  # and nothing of it is read twice


def tails(found: list[Display]) -> list[str]:
    """What one reads who reads only what is new."""
    place: dict[str, int] = {}
    parts: list[str] = []
    for display in found:
        if (message := display.message) is not None:
            parts.append(message.body.since(place.get(message.id, 0)))
            place[message.id] = message.body.length
    return parts


async def test_displays_come_apart_by_the_window_and_never_twice() -> None:
    model = Slow()
    async with served(default_model=model, agent=workshop(modes=[])) as harness:
        session = await harness.get_or_create("s")
        found: list[Display] = []
        showing = asyncio.create_task(shown(session, lambda d: d.error is not None, found))
        await until(lambda: found)
        core_of(session).live.subscribers.publish(Delta("x", 0, ""))  # rings, and changes nothing
        sending = asyncio.create_task(session.send("go"))
        await until(lambda: any(d.message and d.message.text == "Let me" for d in found))
        await session.abort()
        await sending
        await showing
        assert found[-1].error is not None
        assert found[-1].error.code == "aborted"
        assert found[-1].message is not None
        assert found[-1].message.text == "Let me"
        assert all(one != other for one, other in itertools.pairwise(found))


async def test_changes_end_with_the_session() -> None:
    async with served() as harness:
        session = await harness.get_or_create("s")
        found: list[Display] = []
        showing = asyncio.create_task(shown(session, lambda d: False, found))
        await until(lambda: found)
        await session.emit("workshop.opened")
        await session.close()
        await showing
        assert found[-1].head == core_of(session).live.state.head > 1
        gone = await harness.get_or_create("t")
        watching = asyncio.create_task(shown(gone, lambda d: False, found))
        await asyncio.sleep(0)
        await harness.store.delete(gone.key.scope)
        with pytest.raises(HoldfastError) as caught:
            await watching
        assert isinstance(caught.value, SessionNotFound)


@pytest.mark.parity("mastra-session", 85)
@pytest.mark.parametrize(
    ("step", "settings"),
    [
        (Fail(RuntimeError("cable cut"), after="So "), {}),
        (Fail(RuntimeError("cable cut")), {}),
        (Say("...", calls=[Use("look", path="a")]), {"limits": RunLimits(steps=1)}),
    ],
)
async def test_a_run_that_fails_says_so_and_keeps_what_was_asked(step: Any, settings: Any) -> None:
    async with served(step, "Fine.", **settings) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        display = session.display.get()
        assert result.status == "failed"
        assert (display.phase, display.running) == ("error", False)
        assert display.error is not None
        assert display.error.code == result.code
        stored = [message.text for message in await session.transcript(roles=("user",))]
        assert stored == ["go"]


async def test_an_error_is_over_with_the_next_run() -> None:
    def step(call: ModelCall) -> Any:
        return Fail(RuntimeError("cable cut")) if read(call)[-1] == "user: go" else "Fine."

    async with served(step) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).status == "failed"
        assert session.display.get().error is not None
        assert (await session.send("again")).status == "done"
        display = session.display.get()
        assert (display.error, display.phase) == (None, "idle")
        assert display.message is not None
        assert display.message.text == "Fine."


@pytest.mark.parity("mastra-session", 150)
async def test_one_who_looks_badly_or_leaves_disturbs_nobody() -> None:
    async with served("Fine.") as harness:
        session = await harness.get_or_create("s")
        heard: list[str] = []

        def bad(event: str, id: str, value: Any) -> None:
            heard.append("bad")
            raise RuntimeError("listener")

        leave_bad = harness.subscribe(bad)
        leave = harness.subscribe(lambda event, id, value: heard.append("good"))
        changes = session.display.changes()
        await anext(changes)
        await changes.aclose()  # gone at once
        assert (await session.send("go")).status == "done"
        assert heard.count("bad") == heard.count("good") > 0
        leave_bad()
        leave()
        heard.clear()
        await session.send("go")
        assert heard == []


async def test_a_long_run_that_was_compacted_is_shown_from_its_start() -> None:
    steps = [says(Use("look", path=str(n)), text=f"Step {n}. " + "long " * 50) for n in range(12)]
    async with connect("memory:") as store:
        settings: dict[str, Any] = {"store": store, "window_tokens": 300, "window_turns": 2}
        async with served(*steps, "End.", **settings) as harness:
            session = await harness.get_or_create("s")
            await session.send("one")
            await session.send("two")
            before = session.display.get()
        async with served(*steps, "End.", **settings) as harness:
            session = await harness.get_or_create("s")
            assert session.display.get() == before
            assert len(before.tools) == 12


async def test_a_fork_begins_with_nothing_of_its_parents_run() -> None:
    async with served() as harness:
        session = await harness.get_or_create("s")
        await worked(session)
        forked = await session.threads.fork()
        display = forked.display.get()
        assert (display.run, display.message, display.tools) == (None, None, {})
        assert display.usage.total_tokens == 0
        assert (display.thread, display.phase) == (forked.key.thread, "idle")
        assert display.files.keys() == session.display.get().files.keys()


async def test_another_process_shows_the_text_in_flight_too() -> None:
    model = Slow()
    async with connect("memory:") as store:
        settings: dict[str, Any] = {"agent": workshop(modes=[]), "store": store}
        async with (
            served(default_model=model, **settings) as driving,
            served(default_model=Slow(), **settings) as watching,
        ):
            here = await driving.get_or_create("s")
            there = await watching.get_or_create("s")
            found: list[Display] = []
            showing = asyncio.create_task(
                shown(there, lambda d: d.head > 2 and d.phase == "idle", found)
            )
            await until(lambda: found)
            sending = asyncio.create_task(here.send("go"))
            await until(lambda: any(d.message and d.message.text == "Let me" for d in found))
            model.gate.open()
            await sending
            await showing
            assert found[-1] == here.display.get() == there.display.get()
            assert found[-1].message is not None
            assert found[-1].message.text == "Let me see."
