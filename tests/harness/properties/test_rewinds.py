"""Laws of rewinding: whatever is appended, rewound, forked, erased, compacted, moved and loaded
again, a thread shows the conversation of a naive model, which keeps every history as a list."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from holdfast import (
    Event,
    Key,
    NewEvent,
    Row,
    Sessions,
    Snapshot,
    Store,
    export_bundle,
    import_bundle,
    key,
)
from holdfast import events as ev
from holdfast.harness.live.log import Live
from holdfast.harness.live.log_loader import LogLoader
from holdfast.harness.live.prompt_history import History
from holdfast.log.conversation import conversation
from holdfast.log.events import ids
from holdfast.log.state import VERSION, State, fold
from holdfast.sessions.rewind import folded
from holdfast.stores.conversation import messages_of
from holdfast.stores.memory import MemoryStore
from holdfast.transcript import transcript, turns

Op: TypeAlias = tuple[Any, ...]
WORD = "word"
ERASABLE = ("message.received", "message.completed", "tool.finished")


def shown(events: list[Event], shared: int) -> str | None:
    """The first message in the row of a log: after a rewind to another one, there is none until the
    next."""
    text: str | None = None
    for n, event in enumerate(events, 1):
        if event.seq <= shared:
            continue
        if event.kind == "thread.rewound":
            left = [e for e in conversation(events[:n]) if e.seq > shared and said(e)]
            text = text if left and said(left[0]) == text else None
        else:
            text = text or said(event)
    return text


def said(event: Event) -> str | None:
    text: str | None = event.json().get("text") if event.kind == "message.received" else None
    return text


class Model:
    """The histories of the threads of a session: for each number, the numbers that count."""

    def __init__(self) -> None:
        self.histories: dict[str, list[list[int]]] = {"main": [[]]}
        self.shared: dict[str, int] = {"main": 0}
        self.erased = False

    def append(self, thread: str, seqs: Sequence[int]) -> None:
        for seq in seqs:
            known = self.histories[thread]
            assert len(known) == seq
            known.append([*known[-1], seq])

    def rewind(self, thread: str, to: int) -> None:
        known = self.histories[thread]
        known.append(known[to])

    def fork(self, thread: str, new: str, at: int) -> None:
        self.histories[new] = [*self.histories[thread][: at + 1]]
        self.shared[new] = at
        self.append(new, [at + 1])


class World:
    """A store with one session, on which operations are played, and the model."""

    def __init__(self) -> None:
        self.store: Store = MemoryStore()
        self.model = Model()
        self.count = 0
        self.live: Live | None = None

    def key(self, thread: str = "main") -> Key:
        return key("s", thread)

    def thread(self, pick: int) -> str:
        names = sorted(self.model.histories)
        return names[pick % len(names)]

    async def events(self, thread: str) -> list[Event]:
        return [event async for event in self.store.read(self.key(thread))]

    async def row(self, thread: str) -> Row:
        row = await self.store.row(self.key(thread))
        assert row is not None
        return row

    async def put(self, thread: str, *facts: NewEvent) -> None:
        done = await self.store.append(self.key(thread), facts, create=thread == "main")
        assert done.fresh == len(facts)
        self.model.append(thread, done.seqs)

    def name(self) -> str:
        self.count += 1
        return f"{WORD}{self.count}."

    # Operations

    async def play(self, op: Op) -> None:
        what, pick, *rest = op
        await getattr(self, f"do_{what}")(self.thread(pick), *rest)

    async def do_say(self, thread: str) -> None:
        await self.put(thread, NewEvent.of("message.received", {"text": self.name()}))

    async def do_answer(self, thread: str) -> None:
        await self.put(thread, NewEvent.of("message.completed", {"text": self.name()}))

    async def do_call(self, thread: str) -> None:
        name = self.name()
        call = {"text": name, "calls": [{"id": f"c{self.count}", "name": "look"}]}
        await self.put(thread, NewEvent.of("message.completed", call))

    async def do_finish(self, thread: str, pick: int) -> None:
        """An outcome of any call of the log, again if it has one; twice is as often as it gets."""
        events = await self.events(thread)
        calls = [c.id for m in transcript(events) for c in m.calls if c.outcome is None]
        if calls:
            call = calls[pick % len(calls)]
            state = fold(events)
            known = {event.id for event in events}
            id = ids.done_id(call)
            id = ids.done_id(call, state.rewound) if id in known else id
            data = {"call": call, "result": self.name()}
            await self.put(thread, NewEvent.of("tool.finished", data, id=id))

    async def do_run(self, thread: str) -> None:
        """A whole turn of a driver, of the oldest message in the queue."""
        row = await self.row(thread)
        if not (state := await folded(self.store, row)).queue:
            await self.do_say(thread)
            state = await folded(self.store, await self.row(thread))
        inputs, run = [state.queue[0].seq], f"r{self.count}"
        await self.put(
            thread,
            NewEvent.of("run.started", {"inputs": inputs, "driver": "d"}, run=run),
            NewEvent.of("model.called", {"model": "m/m"}, run=run),
            NewEvent.of("message.completed", {"text": self.name()}, run=run),
            NewEvent.of("run.finished", {}, run=run),
        )

    async def do_compact(self, thread: str, left: int) -> None:
        loaded = await self.loaded(thread)
        made = loaded[1].cut(1 << 40, left)
        if made is not None:
            fields = {"upto": made.upto, "carry": made.carry, "turns": made.turns}
            more = {"tokens": made.tokens, "summary": self.name()}
            await self.put(thread, NewEvent.of("compaction.made", {**fields, **more}))

    async def do_rewind(self, thread: str, pick: int) -> None:
        head = (await self.row(thread)).head
        await Sessions(self.store).rewind("s", pick % (head + 1), thread=thread)
        self.model.rewind(thread, pick % (head + 1))

    async def do_fork(self, thread: str, pick: int) -> None:
        if len(self.model.histories) < 3:
            at = 1 + pick % (await self.row(thread)).head
            new = f"t{len(self.model.histories)}"
            first = NewEvent.of("thread.forked", {"parent": thread, "at": at})
            await self.store.fork(self.key(thread), new, at=at, first=first)
            self.model.fork(thread, new, at)

    async def do_erase(self, thread: str, pick: int) -> None:
        seqs = [e.seq for e in await self.events(thread) if e.kind in ERASABLE]
        if seqs:
            await self.store.erase(self.key(thread), [seqs[pick % len(seqs)]], reason="asked")
            self.model.erased = True
            await self.restart()

    async def do_bundle(self, thread: str) -> None:
        """The session goes on in another store."""
        scope, store = self.key().scope, MemoryStore()
        bundle = await export_bundle((self.store, scope), "local", purpose="move", move_to="there")
        await import_bundle(store, bundle)
        self.store = store
        for name, known in self.model.histories.items():
            head = (await self.row(name)).head
            self.model.append(name, range(len(known), head + 1))
        await self.restart()

    async def do_restart(self, thread: str) -> None:
        await self.restart()

    async def do_snapshot(self, thread: str) -> None:
        row = await self.row(thread)
        state = Raw(msgspec.json.encode(await folded(self.store, row)))
        lease = await self.store.acquire(row.key, "d", ttl=60)
        kept = Snapshot(log=row.log, seq=row.head, version=VERSION, state=state)
        await self.store.save_snapshot(row.key, kept, fence=lease)
        await self.store.release(lease)

    async def restart(self) -> None:
        if self.live is not None:
            await self.live.aclose()
        self.live = Live(self.store, self.key())
        await self.live.open()

    # What must hold

    async def loaded(self, thread: str) -> tuple[State, History]:
        row = await self.row(thread)
        found = await LogLoader(self.store, self.key(thread), row.log).load()
        return found.state, found.history

    async def check(self) -> None:
        for thread in self.model.histories:
            await self.check_thread(thread)
        assert self.live is not None
        state, history = await self.loaded("main")
        await self.live.reach(state.head)
        assert self.live.state == state
        assert prompt(self.live.history) == prompt(history)

    async def check_thread(self, thread: str) -> None:
        events, row = await self.events(thread), await self.row(thread)
        counted = set(self.model.histories[thread][row.head])
        kept = [event for event in events if event.seq in counted]
        assert [e for e in conversation(events) if e.kind != "thread.rewound"] == kept
        messages = transcript(kept)
        assert transcript(events) == messages
        assert await messages_of(self.store, self.key(thread), 3) == messages[-3:]
        cut = [e for turn in turns(events) for e in turn if e.kind != "thread.rewound"]
        assert cut == kept
        self.check_row(thread, row, events, kept)
        state, history = await self.loaded(thread)
        assert state == fold(events)
        self.check_state(state, kept)
        whole = History()
        whole.extend(conversation(events), state)
        assert prompt(history) == prompt(whole)
        # A model reads what is in the window and not in the queue, and nothing else that was said.
        lines, queued = "\n".join(prompt(history)), {item.seq for item in state.queue}
        window = [m for m in messages if m.seq > state.window.upto and m.seq not in queued]
        assert [m.text for m in window if m.text not in lines] == []
        gone = transcript(
            [e for e in events if e.seq not in counted and e.kind != "thread.rewound"]
        )
        assert [m.text for m in gone if m.text and m.text in lines] == []

    def check_row(self, thread: str, row: Row, events: list[Event], kept: list[Event]) -> None:
        shared = self.model.shared[thread]
        own = [event for event in kept if event.seq > shared]
        said = [e for e in own if e.kind in ("message.received", "message.completed")]
        assert row.counts.get("messages", 0) == len(said)
        if not self.model.erased:
            assert row.first_message == shown(events, shared)

    def check_state(self, state: State, kept: list[Event]) -> None:
        then = fold(kept)
        assert (state.window.upto, state.window.seq) == (then.window.upto, then.window.seq)
        assert state.window.turns == then.window.turns
        if not self.model.erased:
            assert state.window.tokens == then.window.tokens
        assert {q.seq for q in state.queue} <= {e.seq for e in kept}
        assert {*state.calls} <= {*then.calls}

    async def check_search(self) -> None:
        found = (await Sessions(self.store).search(f"{WORD}*", session="s", limit=1_000)).hits
        seen = set()
        for thread in sorted(self.model.histories):
            counted = set(self.model.histories[thread][-1])
            for event in await self.events(thread):
                if event.seq in counted and WORD in bytes(event.data).decode():
                    seen.add(event.id)
        assert len(found) == len(seen)


def prompt(history: History) -> list[str]:
    return [repr(message) for message in history.messages("m/m", {})]


PICK = st.integers(0, 40)
THREAD = st.integers(0, 2)
OPS = st.one_of(
    *(st.tuples(st.just(what), THREAD) for what in ("say", "answer", "call", "run", "restart")),
    st.tuples(st.just("snapshot"), THREAD),
    st.tuples(st.just("bundle"), THREAD),
    *(st.tuples(st.just(what), THREAD, PICK) for what in ("finish", "fork", "erase")),
    st.tuples(st.just("compact"), THREAD, st.integers(0, 2)),
    *(st.tuples(st.just("rewind"), THREAD, PICK) for _ in range(4)),
)


async def play(ops: list[Op]) -> None:
    world = World()
    await world.put("main", NewEvent.of("session.created", {}))
    await world.restart()
    try:
        for op in ops:
            await world.play(op)
            await world.check()
        await world.check_search()
    finally:
        assert world.live is not None
        await world.live.aclose()


@settings(max_examples=2 * settings().max_examples)
@given(ops=st.lists(OPS, max_size=14))
@example(ops=[("run", 0), ("run", 0), ("compact", 0, 0), ("run", 0), ("rewind", 0, 6)])
@example(ops=[("run", 0), ("rewind", 0, 2), ("run", 0), ("rewind", 0, 7), ("rewind", 0, 4)])
@example(ops=[("say", 0), ("call", 0), ("finish", 0, 0), ("rewind", 0, 3), ("finish", 0, 0)])
@example(ops=[("run", 0), ("run", 0), ("rewind", 0, 6), ("snapshot", 0), ("restart", 0)])
@example(ops=[("run", 0), ("fork", 0, 5), ("run", 1), ("rewind", 1, 2), ("run", 1)])
def test_any_operations_agree_with_histories_as_lists(ops: list[Op]) -> None:
    asyncio.run(play(ops))


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """A log of messages, calls, outcomes and runs, in any order."""
    facts: list[tuple[str, Any]] = []
    for number, what in enumerate(draw(st.lists(st.integers(0, 6), min_size=1, max_size=20)), 1):
        call = {"calls": [{"id": f"c{number % 3}", "name": "look"}]}
        facts.append(
            (
                ("message.received", {"text": f"m{number}"}),
                ("message.completed", {"text": f"a{number}"}),
                ("message.completed", call),
                ("tool.finished", {"call": f"c{number % 3}", "result": number}),
                ("run.started", {"inputs": [max(1, number - 1)]}),
                ("run.finished", {}),
                ("compaction.made", {"upto": number // 2, "tokens": 5, "turns": 1}),
            )[what]
        )
    return [
        NewEvent.of(kind, data, id=f"e{n}").numbered(n, n)
        for n, (kind, data) in enumerate(facts, 1)
    ]


@settings(max_examples=3 * settings().max_examples)
@given(log=logs(), pick=PICK)
def test_the_fold_of_a_rewind_is_that_of_the_part_before(log: list[Event], pick: int) -> None:
    to = pick % (len(log) + 1)
    then, now = fold(log[:to]), fold(log)
    window = ev.RewoundWindow(
        upto=then.window.upto,
        seq=then.window.seq,
        tokens=then.window.tokens,
        turns=then.window.turns,
    )
    payload = ev.ThreadRewound(to=to, window=window, due=7)
    seq = len(log) + 1
    event = NewEvent.of("thread.rewound", payload).numbered(seq, seq)
    state = fold([*log, event])
    assert transcript([*log, event]) == transcript(log[:to])
    assert state.window == then.window
    assert (state.run, state.due, state.head, state.rewound) == (None, 7, seq, seq)
    # Of what was open then, that which is still open; nothing that was settled opens again.
    assert {*state.calls} == {i for i in now.calls if now.calls[i].seq <= to}
    assert [q.seq for q in state.queue] == [q.seq for q in now.queue if q.seq <= to]
    assert (state.usage, state.total, state.cost) == (now.usage, now.total, now.cost)
