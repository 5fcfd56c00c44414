"""Rewinding a thread: what goes back, what stays, and what a model reads afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    InvalidValue,
    NewEvent,
    Reading,
    SessionBusy,
    Sessions,
    StoreUnavailable,
    connect,
    context,
    key,
    new_id,
    tool,
)
from holdfast import events as ev
from holdfast.events import Event
from holdfast.harness.session.session import Session, core_of
from holdfast.harness.tools.values import UNKNOWN
from holdfast.log.events import ids
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.store import Store
from holdfast.testing import Fail, FaultyStore
from holdfast.values.display import Display, display_of, reduce

from .scene import Slow, helper, kinds, read, script, serve

KEY = key("s")


@tool
async def look(order: str) -> str:
    """Look."""
    return f"order {order}"


@tool(approval="ask")
async def pay(cents: int) -> str:
    """Pay."""
    return "paid"


async def texts(session: Session) -> list[str]:
    return [message.text for message in await session.transcript()]


async def numbers(session: Session, kind: str) -> list[int]:
    return [event.seq for event in await session.events() if event.kind == kind]


async def written(store: Store, *facts: tuple[str, Any] | tuple[str, Any, str]) -> None:
    """A log that no harness has driven; the third part of a fact is the id of its event."""
    events = [NewEvent.of(kind, data, id=id[0] if id else new_id()) for kind, data, *id in facts]
    await store.append(KEY, events, create=True)


async def test_a_model_reads_the_conversation_as_it_was_after_that_event() -> None:
    model = script("one", per_turn=True)
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        end = core_of(session).live.state.head
        await session.send("second")
        await session.rewind(end)
        assert await texts(session) == ["first", "one"]
        await session.send("third")
    assert read(model.calls[-1]) == ["user: first", "model: one", "user: third"]


@pytest.mark.parametrize("after", [False, True])
async def test_a_message_that_replaces_another_is_in_the_log_with_its_rewind_or_not_at_all(
    after: bool,
) -> None:
    async with connect("memory:") as inner:
        store, model = FaultyStore(inner), script("one", per_turn=True)
        async with serve(helper(), default_model=model, store=store) as harness:
            session = await harness.get_or_create("s")
            await session.send("first")
            end = core_of(session).live.state.head
            await session.send("second")
            await session.wait()
            call = store.calls["append"] + 1
            store.plan[:] = [Fail(method="append", call=call, after=after)]
            with pytest.raises(StoreUnavailable):
                await core_of(session).post_at(end, "third")
            found = await kinds(session)
            assert found.count("thread.rewound") == after
            assert found.count("message.received") == 2 + after
            await session.wait()
            seq = await core_of(session).post_at(end, "fourth")
            await session.wait()
            assert (await numbers(session, "thread.rewound"))[-1] == seq - 1
            assert await texts(session) == ["first", "one", "fourth", "one"]
    assert read(model.calls[-1]) == ["user: first", "model: one", "user: fourth"]


async def test_rewinding_to_zero_clears_the_conversation() -> None:
    model = script("one", per_turn=True)
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        await session.rewind(0)
        assert await texts(session) == []
        assert await session.threads.messages(10) == []
        await session.send("again")
        assert await texts(session) == ["again", "one"]
        assert [m.text for m in await session.threads.messages(10)] == ["again", "one"]
    assert read(model.calls[-1]) == ["user: again"]


async def test_a_rewind_may_lead_to_an_event_that_was_rewound_away() -> None:
    model = script("one", per_turn=True)
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        end = core_of(session).live.state.head
        cleared = await session.rewind(0)
        await session.send("other")
        await session.rewind(end)
        assert await texts(session) == ["first", "one"]
        await session.rewind(cleared)
        assert await texts(session) == []
        await session.rewind(end)
        await session.send("more")
    assert read(model.calls[-1]) == ["user: first", "model: one", "user: more"]


async def test_a_rewind_between_a_message_and_its_answer_keeps_the_message() -> None:
    model = script("one", per_turn=True)
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        (asked,) = await numbers(session, "message.received")
        await session.rewind(asked)
        await session.wait()
        assert len(model.calls) == 1  # it is not in the queue again
        assert await texts(session) == ["first"]
        await session.send("second")
        await session.send("third")
    assert read(model.calls[1]) == ["user: first | second"]
    assert read(model.calls[2]) == ["user: first | second", "model: one", "user: third"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_after_a_rewind_a_new_process_reads_the_same_prompt(
    restarted: bool, tmp_path: Path
) -> None:
    model = script(Say("Well.", calls=[Use("look", order="7")]), "seen", per_turn=True)
    settings: dict[str, Any] = {"default_model": model, "store": f"sqlite:{tmp_path}/x.db"}
    agent = helper(tools=[look])
    async with serve(agent, **settings) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        await session.send("second")
        proposed = (await numbers(session, "message.completed"))[2]
        await session.rewind(proposed)
        if not restarted:
            await session.send("third")
    if restarted:
        async with serve(agent, **settings) as harness:
            await harness.send("s", "third")
    turn = ["user: first", "model: Well. [look]", "tools: order 7", "model: seen"]
    rest = ["user: second", "model: Well. [look]", f"tools: {UNKNOWN}", "user: third"]
    calls = [call for call in model.calls if "third" in read(call)[-1]]
    assert read(calls[0]) == [*turn, *rest]


async def test_a_call_whose_outcome_was_rewound_away_shows_as_open_and_never_starts() -> None:
    started: list[str] = []

    @tool
    async def act(what: str) -> str:
        """Act."""
        started.append(what)
        return "done"

    model = script(Say("Well.", calls=[Use("act", what="x")]), "seen", "fine", per_turn=False)
    async with serve(helper(tools=[act]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        (proposed, _) = await numbers(session, "message.completed")
        await session.rewind(proposed)
        _, answer = await session.transcript()
        assert [call.outcome for call in answer.calls] == [None]
        await session.wait()
        assert core_of(session).live.state.calls == {}
        await session.send("and now?")
        assert started == ["x"]
    assert f"tools: {UNKNOWN}" in read(model.calls[-1])


async def test_a_compaction_that_was_rewound_away_is_ignored() -> None:
    model = script("ok", per_turn=True)
    settings: dict[str, Any] = {"default_model": model, "summarise": lambda messages: "Summary."}
    async with serve(helper(), **settings, window_turns=4) as harness:
        session = await harness.get_or_create("s")
        for n in range(3):
            await session.send(f"number {n}")
        end = core_of(session).live.state.head
        while "compaction.made" not in await kinds(session):
            await session.send("more")
        await session.rewind(end)
        assert core_of(session).live.history.summary is None
        await session.send("last")
        expected = [line for n in range(3) for line in (f"user: number {n}", "model: ok")]
        assert read(model.calls[-1]) == [*expected, "user: last"]


async def test_a_rewind_to_after_a_compaction_keeps_its_summary() -> None:
    model = script("ok", per_turn=True)
    settings: dict[str, Any] = {"default_model": model, "summarise": lambda messages: "Summary."}
    async with serve(helper(), **settings, window_turns=4) as harness:
        session = await harness.get_or_create("s")
        while "compaction.made" not in await kinds(session):
            await session.send("more")
        end = core_of(session).live.state.head
        before = core_of(session).live.state.window
        await session.send("gone")
        await session.rewind(end)
        assert core_of(session).live.state.window == before
        await session.send("last")
    lines = read(model.calls[-1])
    assert "Summary." in lines[0]
    assert "gone" not in str(lines)


async def test_only_the_conversation_goes_back() -> None:
    model = script(Say("one", usage={"input_tokens": 3, "output_tokens": 1}), per_turn=True)
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        await session.state.update(plan="pro")
        await session.permissions.set(tool="pay", rule="deny")
        made = await session.checkpoints.create("here")
        await session.threads.settings.set(colour="red")
        await session.timers.set("wake", seconds=3_600, id="t")
        await session.model.set(model.ref)
        before = core_of(session).live.state
        await session.rewind(0)
        after = core_of(session).live.state
        for name in (
            *("usage", "total", "cost", "mode", "model", "models", "data", "rules", "settings"),
            *("checkpoints", "timers", "tasks", "files", "contexts"),
        ):
            assert getattr(after, name) == getattr(before, name), name
        assert after.due == before.timers["t"].at  # a driver still wakes for the timer
        forked = await session.threads.restore(made.id)
        assert await texts(forked) == ["first", "one"]


async def test_an_open_run_refuses_a_rewind_until_it_is_aborted() -> None:
    model = Slow(quick=["later"])
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        with pytest.raises(SessionBusy, match="abort the run first") as refused:
            await session.rewind(0)
        assert refused.value.run == session.current_run_id
        await session.abort()
        await session.wait()
        await session.rewind(0)
        assert await texts(session) == []


async def test_a_pending_item_refuses_a_rewind() -> None:
    model = script(Say("Well.", calls=[Use("pay", cents=1)]), "paid", per_turn=True)
    async with serve(helper(tools=[pay]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).status == "waiting"
        with pytest.raises(SessionBusy):
            await session.rewind(1)
        assert len(await session.pending()) == 1
        assert await numbers(session, "thread.rewound") == []


async def test_what_was_settled_does_not_open_again() -> None:
    model = script(Say("Well.", calls=[Use("pay", cents=1)]), "paid", per_turn=True)
    async with serve(helper(tools=[pay]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        (opened,) = await numbers(session, "pending.opened")
        await session.deny()
        await session.wait()
        await session.rewind(opened)
        assert await session.pending() == []
        row = await session.threads.get()
        assert row is not None
        assert (row.pending, row.run, row.due) == ({}, None, None)


async def test_a_queued_message_that_was_rewound_away_is_removed() -> None:
    model = script("one", per_turn=True)
    async with connect("memory:") as store:
        await written(
            store,
            ("session.created", {"agent": "helper"}),
            ("message.received", {"text": "stays"}, ids.input_id("k1")),
            ("message.received", {"text": "goes"}, ids.input_id("k2")),
        )
        row = await Sessions(store).rewind("s", 2)
        assert row.due is not None  # the other message still waits for a driver
        async with serve(helper(), default_model=model, store=store) as harness:
            session = await harness.get_or_create("s")
            assert (await session.send("goes", key="k2")).status == "removed"
            assert (await session.send("stays", key="k1")).status == "done"
            assert await texts(session) == ["stays", "one"]
    assert [read(call) for call in model.calls] == [["user: stays"]]


async def test_a_message_that_stays_in_the_queue_is_read_when_a_run_takes_it() -> None:
    model = script("one", per_turn=True)
    async with connect("memory:") as store:
        await written(
            store,
            ("session.created", {"agent": "helper"}),
            ("message.received", {"text": "stays"}),
            ("message.received", {"text": "goes"}),
        )
        await Sessions(store).rewind("s", 2)
        later = NewEvent.of("message.received", {"text": "first", "how": "interrupt"})
        await store.append(KEY, [later])
        async with serve(helper(), default_model=model, store=store) as harness:
            session = await harness.get_or_create("s")
            await session.wait()
    first, second = map(read, model.calls)
    assert (first, second[2:]) == (["user: first"], ["user: stays"])


async def test_the_same_outcome_can_be_added_again_after_a_rewind() -> None:
    call = {"calls": [{"id": "c", "name": "look"}]}
    async with connect("memory:") as store:
        await written(
            store,
            ("session.created", {}),
            ("message.received", {"text": "go"}),
            ("message.completed", call),
            ("tool.finished", {"call": "c", "result": "old"}, ids.done_id("c")),
        )
        await Sessions(store).rewind("s", 3)
        again = ev.ToolFinished(call="c", result="new")
        known = NewEvent.of("tool.finished", again, id=ids.done_id("c"))
        assert (await store.append(KEY, [known])).fresh == 0
        new = NewEvent.of("tool.finished", again, id=ids.done_id("c", rewound=5))
        assert (await store.append(KEY, [new])).fresh == 1
        assert ids.done_call(new.id) == "c"
        async with serve(helper(), "fine", store=store) as harness:
            session = await harness.get_or_create("s")
            (_, answer) = await session.transcript()
            assert [c.outcome and c.outcome.result for c in answer.calls] == ["new"]


async def test_an_unfinished_call_of_a_log_without_runs_does_not_refuse_a_rewind() -> None:
    call = {"calls": [{"id": "c", "name": "look"}]}
    async with connect("memory:") as store:
        await written(
            store,
            ("session.created", {}),
            ("message.received", {"text": "go"}),
            ("message.completed", call),
            ("message.received", {"text": "more"}),
        )
        row = await Sessions(store).rewind("s", 3)
        assert (row.counts["messages"], row.head) == (2, 5)
        row = await Sessions(store).rewind("s", 2)
        assert row.counts["messages"] == 1


async def test_forks_edits_and_regenerations_use_the_conversation_at_that_event() -> None:
    model = script("one", per_turn=True)
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        end = core_of(session).live.state.head
        await session.send("gone")
        dropped = core_of(session).live.state.head
        rewound = await session.rewind(end)
        await session.send("second")
        (asked,) = (await numbers(session, "message.received"))[-1:]
        assert await texts(await session.threads.fork(at=rewound)) == ["first", "one"]
        assert await texts(await session.threads.fork(at=dropped)) == [
            "first",
            "one",
            "gone",
            "one",
        ]
        edited = await session.threads.edit(asked, "changed")
        await edited.wait()
        assert await texts(edited) == ["first", "one", "changed", "one"]
        assert read(model.calls[-1]) == ["user: first", "model: one", "user: changed"]
        again = await session.threads.regenerate(asked)
        await again.wait()
        assert await texts(again) == ["first", "one", "second", "one"]
        assert read(model.calls[-1]) == ["user: first", "model: one", "user: second"]


async def test_a_fork_can_be_rewound_into_the_part_that_it_shares() -> None:
    model = script("one", per_turn=True)
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        end = core_of(session).live.state.head
        await session.send("second")
        forked = await session.threads.fork(thread="side")
        await forked.send("third")
        await forked.rewind(end)
        assert await texts(forked) == ["first", "one"]
        assert await texts(session) == ["first", "one", "second", "one"]
        row = await forked.threads.get()
        assert row is not None
        assert (row.counts["messages"], row.first_message) == (0, None)
        await forked.send("fourth")
        row = await forked.threads.get()
        assert row is not None
        assert (row.counts["messages"], row.first_message) == (2, "fourth")
    assert read(model.calls[-1]) == ["user: first", "model: one", "user: fourth"]


async def test_live_displays_start_afresh() -> None:
    model = script(Say("Well.", calls=[Use("look", order="7")]), "seen", per_turn=True)
    async with serve(helper(tools=[look]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        shown = session.display.get()
        assert shown.message is not None
        assert shown.tools
        await session.rewind(2)
        fresh = session.display.get()
        assert (fresh.run, fresh.message, fresh.tools, fresh.phase) == (None, None, {}, "idle")
        (event,) = await session.events(kinds=("thread.rewound",))
        assert reduce(shown, event) == fresh  # as a remote reader has it
        state = core_of(session).live.state
        kept = Display(
            session=fresh.session, thread="main", modes=fresh.modes, default=fresh.default
        )
        assert display_of(state, [], start=kept) == fresh


async def test_a_repeated_key_rewinds_once_even_if_a_run_is_open_by_then() -> None:
    model = Slow(quick=["first"])
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        seq = await session.rewind(0, key="k")
        await session.post("second")
        await model.gate.someone()
        assert await session.rewind(0, key="k") == seq
        with pytest.raises(SessionBusy):
            await session.rewind(0, key="another")
        model.gate.open()
        await session.wait()
        assert await texts(session) == ["second", "Let me see."]


async def test_contexts_read_the_conversation_that_is_left() -> None:
    seen: list[list[str]] = []

    @context
    async def recent(reading: Reading) -> str:
        """What was said."""
        seen.append([message.text for message in await reading.transcript(limit=2)])
        return ""

    async with serve(helper(contexts=[recent]), "one") as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        end = core_of(session).live.state.head
        await session.send("gone")
        await session.rewind(end)
        await session.send("second")
    assert seen[-1] == ["one", "second"]


async def test_every_event_stays_in_the_log() -> None:
    async with serve(helper(), "one") as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        before = await session.events()
        seq = await session.rewind(0, actor="ann")
        events = await session.events()
        assert events[:-1] == before
        assert (events[-1].seq, events[-1].kind, events[-1].actor) == (seq, "thread.rewound", "ann")


@pytest.mark.parametrize("to", [-1, 99, True, "1", None])
async def test_an_event_that_does_not_exist_is_refused(to: Any) -> None:
    async with serve(helper(), "one") as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue, match="to"):
            await session.rewind(to)
        assert await numbers(session, "thread.rewound") == []


class Counting:
    """A store that counts the events that are read from it."""

    def __init__(self, store: Store) -> None:
        self._store, self.count = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, *args: Any, **options: Any) -> Any:
        async for event in self._store.read(*args, **options):
            self.count += isinstance(event, Event)
            yield event


async def test_opening_a_rewound_log_does_not_read_what_was_rewound_away() -> None:
    async with connect("memory:") as store:
        async with serve(helper(), "one", store=store) as harness:
            session = await harness.get_or_create("s")
            await session.send("first")
            end = core_of(session).live.state.head
            for _ in range(12):
                many = [NewEvent.of("shop.noted", {}) for _ in range(500)]
                await store.append(KEY, many)
            await session.rewind(end)
            await session.send("second")  # its driver writes a snapshot
            assert len(await session.transcript()) == 4
        counted: Any = Counting(store)
        async with serve(helper(), "one", store=counted) as harness:
            session = await harness.get_or_create("s")
            assert len(core_of(session).live.history.turns) == 2
        assert counted.count < 1_500


async def test_a_prompt_after_many_rewinds_is_that_of_the_conversation() -> None:
    model = ScriptedModel(["ok"], per_turn=True)
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        end = core_of(session).live.state.head
        for n in range(5):
            await session.send(f"gone {n}")
            await session.rewind(end)
        await session.send("last")
    assert read(model.calls[-1]) == ["user: first", "model: ok", "user: last"]
