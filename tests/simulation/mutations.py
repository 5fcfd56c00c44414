"""Mutations of the product, and how soon the simulation notices each of them.

Each mutation patches product code at run time. The simulation then plays schedules by seed until a
judge reports a problem. Run as a command, this prints the table:

    python -m tests.simulation.mutations [--most N] [--json] [NAME ...]
    python -m tests.simulation.mutations --markdown > docs/simulation-mutations.md
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace

from holdfast.errors import HeadMoved, StoreUnavailable
from holdfast.harness import Tool, ToolResult
from holdfast.harness.agents import meter
from holdfast.harness.live import decisions, inputs, subscribers
from holdfast.harness.live.inputs import accept
from holdfast.harness.live.log import Live
from holdfast.harness.live.prompt_history import History
from holdfast.harness.loop import (
    decide,
    delegation,
    driver,
    lease,
    model_call,
    perform,
    proposed_calls,
    run_loop,
    run_start,
    schedule_firing,
    steps,
    tool_call,
)
from holdfast.harness.session import base
from holdfast.harness.tools import Happened, NotHappened
from holdfast.harness.workers import drivers, recovery, slots
from holdfast.log import events as ev
from holdfast.log.events import Event, NewEvent, ids, new_id
from holdfast.log.state import State
from holdfast.stores import notify, rules
from holdfast.stores.memory import MemoryStore
from holdfast.testing.simulation import judges, simulation
from holdfast.testing.simulation.faults import InjectedFault
from holdfast.testing.simulation.scenario import Scenario, Step, draw
from holdfast.values import budgets

folding = importlib.import_module("holdfast.log.state.fold")  # `fold` is also a function there

MOST = 300  # schedules in which a mutation must be found
CPU = 20.0  # seconds that one schedule may take before it counts as endless work

Patch = Callable[[], AbstractContextManager[Any]]


class Mutation(NamedTuple):
    """A named change of the product that breaks one of its promises."""

    name: str
    about: str
    apply: Patch


MUTATIONS: dict[str, Mutation] = {}

# Mutations that no schedule can tell from the product, each with the proof.
EQUIVALENT: dict[str, str] = {"none": "It changes nothing."}


def mutation(about: str) -> Callable[[Callable[[], Iterator[None]]], None]:
    """Register a generator function that applies a mutation while it is suspended."""

    def register(function: Callable[[], Iterator[None]]) -> None:
        name = function.__name__
        MUTATIONS[name] = Mutation(name, about, contextmanager(function))

    return register


def every(number: int) -> Callable[[], bool]:
    """A function that returns True at every call whose count is a multiple of `number`."""
    count = 0

    def due() -> bool:
        nonlocal count
        count += 1
        return count % number == 0

    return due


@mutation("nothing: the product as it is, which no judge may find wrong")
def none() -> Iterator[None]:
    yield


# Stores


@mutation("appends are not fenced: a driver that lost its lease can still write")
def skip_fence() -> Iterator[None]:
    with patch.object(rules, "check_fence", lambda *_: None):
        yield


@mutation("appends ignore the head that their writer expects")
def skip_head_check() -> Iterator[None]:
    with patch.object(rules, "check_head", lambda *_: None):
        yield


@mutation("events whose id is already in the log are stored again")
def no_dedup() -> Iterator[None]:
    extend = rules.extend

    def forgetful(row: Any, held: Any, events: Any, seals: Any, known: Any, **rest: Any) -> Any:
        return extend(row, held, events, seals, {}, **rest)

    with patch.object(rules, "extend", forgetful):
        yield


@mutation("a lease is granted while another driver holds one that is live")
def take_live_lease() -> Iterator[None]:
    with patch.object(rules, "lease_left", lambda *_: 0):
        yield


@mutation("a new lease has the token of the one before")
def reuse_token() -> Iterator[None]:
    take = rules.take_lease

    def same(row: Any, state: Any, owner: str, **rest: Any) -> Any:
        made, held = take(row, state, owner, **rest)
        token = state.token or made.token
        return replace(made, token=token), replace(held, token=token)

    with patch.object(rules, "take_lease", same):
        yield


@mutation("any driver can release the lease of the newest one")
def release_any_lease() -> Iterator[None]:
    def release(row: Any, state: Any, held: Any, head: int | None) -> Any:
        if head is not None:
            rules.check_head(row, head)
        return rules.LeaseState(token=state.token)

    with patch.object(rules, "release", release):
        yield


@mutation("drafts stay in the store after their message is complete")
def keep_drafts() -> Iterator[None]:
    extended = rules.extended

    def keeping(*args: Any, **rest: Any) -> Any:
        made = extended(*args, **rest)
        kept = [[op for op in change if op.do != "drop_draft"] for change in made.changes]
        return replace(made, changes=kept)

    with patch.object(rules, "extended", keeping):
        yield


# Lookups


@mutation("the number of an event is looked up in the wrong place")
def wrong_numbers() -> Iterator[None]:
    seqs = MemoryStore.seqs

    async def shifted(self: Any, *args: Any, **options: Any) -> dict[str, int]:
        return {id: seq + 1 for id, seq in (await seqs(self, *args, **options)).items()}

    with patch.object(MemoryStore, "seqs", shifted):
        yield


@mutation("the log to which an event was appended is not found by its id")
def locate_nothing() -> Iterator[None]:
    with patch.object(MemoryStore, "_holds", lambda *_: False):
        yield


# Followers and readers


@mutation("a follower misses some of the events that its own process appended")
def follower_skips() -> Iterator[None]:
    woken, due = notify.Follower.woken, every(9)

    async def skipping(self: notify.Follower) -> list[Event] | None:
        told = await woken(self)
        return told[1:] if told and due() else told

    with patch.object(notify.Follower, "woken", skipping):
        yield


@mutation("a follower delivers some events twice")
def follower_repeats() -> Iterator[None]:
    arrived, due = Live._arrived, every(5)

    def twice(self: Live, event: Event) -> None:
        arrived(self, event)
        if due():
            arrived(self, event)

    with patch.object(Live, "_arrived", twice):
        yield


@mutation("a listener that falls behind skips what it missed")
def listener_skips() -> Iterator[None]:
    async def skip(self: Any) -> Any:
        self.after = max(self.after, self._live.state.head)
        self._behind = False
        for nothing in tuple[Event, ...]():
            yield nothing

    with patch.object(subscribers.Listener, "_missed", skip):
        yield


@mutation("a listener gets again what it read from the log")
def listener_repeats() -> Iterator[None]:
    missed = subscribers.Listener._missed

    async def again(self: Any) -> Any:
        before = self.after
        async for item in missed(self):
            yield item
        for event in [item for item in self._live._recent._events if item.seq > before][:1]:
            yield event

    with patch.object(subscribers.Listener, "_missed", again):
        yield


# Messages


@mutation("a message is acknowledged before it is in the log")
def acknowledge_early() -> Iterator[None]:
    async def early(store: Any, live: Any, *args: Any, **options: Any) -> tuple[int, bool]:
        task = asyncio.ensure_future(accept(store, live, *args, **options))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return live.state.head + 1, True

    with patch.object(base, "accept", early):
        yield


@mutation("a message is acknowledged although its append failed")
def acknowledge_failure() -> Iterator[None]:
    async def careless(store: Any, live: Any, *args: Any, **options: Any) -> tuple[int, bool]:
        try:
            return await accept(store, live, *args, **options)
        except StoreUnavailable:
            return live.state.head + 1, True

    with patch.object(base, "accept", careless):
        yield


@mutation("idempotency keys are ignored")
def ignore_keys() -> Iterator[None]:
    with patch.object(inputs, "message_id", lambda key: new_id()):
        yield


@mutation("queued messages are dropped when a run ends")
def drop_queue() -> Iterator[None]:
    finished = folding.STEPS["run.finished"]

    def dropping(work: Any, event: Event, payload: Any) -> None:
        finished(work, event, payload)
        work.queue = ()

    with patch.dict(folding.STEPS, {"run.finished": dropping}):
        yield


@mutation("the newest queued message is handled first")
def newest_first() -> Iterator[None]:
    idle = decide._idle

    def last(state: Any, bounds: Any) -> Any:
        step = idle(state, bounds)
        return replace(step, input=state.queue[-1].seq) if isinstance(step, steps.Start) else step

    with patch.object(decide, "_idle", last):
        yield


@mutation("a run does not record which messages it takes up")
def forget_inputs() -> Iterator[None]:
    def without(**fields: Any) -> ev.ModelCalled:
        return ev.ModelCalled(**{**fields, "inputs": []})

    class Payloads:
        ModelCalled = staticmethod(without)

        def __getattr__(self, name: str) -> Any:
            return getattr(ev, name)

    with patch.object(driver, "ev", Payloads()):
        yield


@mutation("aborts are ignored")
def ignore_abort() -> Iterator[None]:
    def ignored(work: Any, event: Event, payload: Any) -> None:
        work.due = event.at

    with patch.dict(folding.STEPS, {"abort.requested": ignored}):
        yield


# Tools


@mutation("the intent of a call is not written")
def forget_intent() -> Iterator[None]:
    append = lease.Hold.append

    async def forgetful(self: Any, events: Any, expected: int | None, **rest: Any) -> int:
        left = [event for event in events if event.kind != "tool.started"]
        return await append(self, left, expected, **rest) if left else self._live.state.head

    with patch.object(lease.Hold, "append", forgetful):
        yield


@mutation("the intent of a call is written with its outcome")
def intent_after_call() -> Iterator[None]:
    append, late = lease.Hold.append, dict[int, list[NewEvent]]()

    async def delayed(self: Any, events: Any, expected: int | None, **rest: Any) -> int:
        now = [event for event in events if event.kind != "tool.started"]
        if len(now) < len(events):
            late.setdefault(id(self), []).extend(e for e in events if e.kind == "tool.started")
        if not now:
            return int(self._live.state.head)
        if any(event.kind == "tool.finished" for event in now):
            now = [*late.pop(id(self), []), *now]
        return await append(self, now, expected, **rest)

    with patch.object(lease.Hold, "append", delayed):
        yield


@mutation("a call whose outcome is unknown is repeated, whatever the tool says")
def repeat_lost_call() -> Iterator[None]:
    with patch.object(decide, "_begun", lambda calls: steps.RunTools(tuple(calls))):
        yield


@mutation("every tool is called twice")
def call_twice() -> Iterator[None]:
    carried_out = tool_call.carried_out

    async def twice(*args: Any, **options: Any) -> Any:
        await carried_out(*args, **options)
        return await carried_out(*args, **options)

    with patch.object(tool_call, "carried_out", twice):
        yield


@mutation("the outcome of some calls is not written")
def lose_outcome() -> Iterator[None]:
    kept, due = tool_call.kept, every(3)

    async def losing(driving: Any, ready: Any, result: Any) -> Any:
        if ready.tool.repeat_safe or not due():
            return await kept(driving, ready, result)
        return result

    with patch.object(tool_call, "kept", losing):
        yield


@mutation("a call is recorded as done although the tool was not called")
def skip_call() -> Iterator[None]:
    carried_out, due = tool_call.carried_out, every(3)

    async def skipping(driving: Any, ready: Any, outer: Any = None) -> Any:
        if due():
            return ToolResult(content="done")
        return await carried_out(driving, ready, outer)

    with patch.object(tool_call, "carried_out", skipping):
        yield


@mutation("a person is asked about a lost call without asking its probe")
def skip_probes() -> Iterator[None]:
    begun = decide._begun

    def unprobed(calls: Any) -> Any:
        return begun({id: replace(call, probe=None) for id, call in calls.items()})

    with patch.object(decide, "_begun", unprobed):
        yield


@mutation("a lost call is repeated although its probe does not know whether it happened")
def repeat_after_doubt() -> Iterator[None]:
    may = decide.may_start_again
    with patch.object(decide, "may_start_again", lambda c: c.probe == "unknown" or may(c)):
        yield


@mutation("a probe that says that the call happened is taken for one that says the opposite")
def happened_is_not_happened() -> Iterator[None]:
    probed = Tool.probed

    async def opposite(self: Any, arguments: Any, context: Any) -> Any:
        answer = await probed(self, arguments, context)
        return NotHappened() if isinstance(answer, Happened) else answer

    with patch.object(Tool, "probed", opposite):
        yield


# Decisions


@mutation("decisions about one item have different ids")
def settle_twice() -> Iterator[None]:
    with patch.object(ids, "settle_id", lambda item: f"settle:{item}:{new_id()}"):
        yield


@mutation("an item that expires counts as approved")
def expire_into_approved() -> Iterator[None]:
    settle = perform._settle

    def approved(driving: Any, id: str, how: Any) -> NewEvent:
        return settle(driving, id, "approved" if how == "expired" else how)  # type: ignore[arg-type]

    with patch.object(perform, "_settle", approved):
        yield


@mutation("a denied call is carried out")
def run_denied() -> Iterator[None]:
    settled = folding.STEPS["pending.settled"]

    def approving(work: Any, event: Event, payload: Any) -> None:
        if payload is not None and payload.outcome == "denied":
            payload = replace(payload, outcome="approved")
        settled(work, event, payload)

    with patch.dict(folding.STEPS, {"pending.settled": approving}):
        yield


@mutation("calls that need an approval are carried out without one")
def skip_approval() -> Iterator[None]:
    async def auto(*_: Any) -> str:
        return "auto"

    with patch.object(proposed_calls, "approval", auto), patch.object(tool_call, "approval", auto):
        yield


@mutation("one approval is enough for a call that needs two")
def one_approval() -> Iterator[None]:
    class One:
        def __init__(self, tool: Any) -> None:
            self._tool = tool

        def __getattr__(self, name: str) -> Any:
            return 1 if name == "approvals" else getattr(self._tool, name)

    asked = proposed_calls.asked

    def once(driving: Any, call: Any, tool: Any, *, again: int = 0) -> NewEvent:
        return asked(driving, call, One(tool), again=again)  # type: ignore[arg-type]

    with patch.object(proposed_calls, "asked", once), patch.object(tool_call, "asked", once):
        yield


@mutation("two approvals by the same person count as two")
def vote_twice() -> Iterator[None]:
    votes, voted = decisions._votes, folding.STEPS["pending.voted"]

    async def anonymous(*args: Any) -> list[Event]:
        return [replace(event, actor=f"{event.id}") for event in await votes(*args)]

    def counted(work: Any, event: Event, payload: Any) -> None:
        voted(work, replace(event, actor=event.id), payload)

    with ExitStack() as stack:
        stack.enter_context(patch.object(decisions, "_votes", anonymous))
        stack.enter_context(patch.dict(folding.STEPS, {"pending.voted": counted}))
        stack.enter_context(patch.object(ids, "vote_id", lambda item, actor: f"vote:{new_id()}"))
        yield


# Drivers and leases


@mutation("a driver does not renew its lease")
def no_renewal() -> Iterator[None]:
    async def never(self: Any) -> None:
        self._renewal.ask()

    with patch.object(lease.Hold, "_renew", never):
        yield


@mutation("a driver writes without its lease")
def no_fence() -> Iterator[None]:
    async def append(self: Any, events: Any, expected: int | None, **rest: Any) -> int:
        live = self._live
        while True:
            try:
                done = await self._store.append(live.key, events, expected=expected, log=live.log)
            except StoreUnavailable:
                await asyncio.sleep(0.1)
            else:
                return int(done.head)

    with patch.object(lease.Hold, "append", append):
        yield


@mutation("a driver releases its lease before it writes the end of a run")
def release_early() -> Iterator[None]:
    append = lease.Hold.append

    async def early(self: Any, events: Any, expected: int | None, **rest: Any) -> int:
        if not any(event.kind == "run.finished" for event in events):
            return await append(self, events, expected)
        with contextlib.suppress(StoreUnavailable):
            await self.release()
        live = self._live
        done = await self._store.append(live.key, events, expected=expected, log=live.log)
        return int(done.head)

    with patch.object(lease.Hold, "append", early):
        yield


@mutation("a driver releases its lease although the log has grown")
def release_unread() -> Iterator[None]:
    async def release_if_idle(self: Any) -> bool:
        await self.release()
        return True

    with patch.object(lease.Hold, "release_if_idle", release_if_idle):
        yield


@mutation("a driver releases its lease after each append")
def always_release() -> Iterator[None]:
    append = lease.Hold.append

    async def once(self: Any, events: Any, expected: int | None, **rest: Any) -> int:
        head = await append(self, events, expected)
        with contextlib.suppress(StoreUnavailable):
            await self.release()
        return head

    with patch.object(lease.Hold, "append", once):
        yield


@mutation("a driver never releases its lease")
def never_release() -> Iterator[None]:
    async def release_if_idle(self: Any) -> bool:
        return True

    async def release(self: Any) -> None:
        return None

    append = lease.Hold.append

    async def kept(self: Any, events: Any, expected: int | None, **rest: Any) -> int:
        return await append(self, events, expected)

    with patch.multiple(lease.Hold, release_if_idle=release_if_idle, release=release, append=kept):
        yield


@mutation("a message is written with the start of its run while another driver holds the lease")
def start_under_live_lease() -> Iterator[None]:
    extend = rules.extend

    def greedy(row: Any, held: Any, *args: Any, **options: Any) -> Any:
        if options.get("acquire") is not None:
            held = rules.LeaseState(held.token)
        return extend(row, held, *args, **options)

    with patch.object(rules, "extend", greedy):
        yield


@mutation("the last append of a run releases the lease whatever is left to do")
def release_with_work_left() -> Iterator[None]:
    with patch.object(driver, "step_after", lambda *_: steps.Idle()):
        yield


@mutation("an append that releases the lease does not check the head")
def release_without_head() -> Iterator[None]:
    append = lease.Hold.append

    async def blind(self: Any, events: Any, expected: int | None, **rest: Any) -> int:
        return await append(self, events, None if rest.get("release") else expected, **rest)

    with patch.object(lease.Hold, "append", blind):
        yield


@mutation("an append that was repeated gets no lease back, and its run is left alone")
def forget_marks() -> Iterator[None]:
    with patch.object(rules, "marked_lease", lambda *_: None):
        yield


@mutation("what a run used is never written to the usage logs")
def forget_charges() -> Iterator[None]:
    async def lose(*_: Any) -> int:
        return 0

    with patch.object(meter, "write", lose):
        yield


@mutation("a model call is counted each time that its message is read")
def charge_twice() -> Iterator[None]:
    charge_of = budgets.charge_of
    count = iter(range(10**9))

    def anew(source: str, usage: dict[str, int]) -> Any:
        return charge_of(f"{source}-{next(count)}", usage)

    with patch.object(meter, "charge_of", anew):
        yield


@mutation("runs go on although a budget is used up")
def ignore_budgets() -> Iterator[None]:
    with patch.object(meter.BudgetCheck, "stop", lambda *_: None):
        yield


@mutation("a message is written with the start of its run although others are queued")
def start_out_of_turn() -> Iterator[None]:
    candidate = run_start._candidate

    def hasty(config: Any, live: Any, event: Any, check: Any) -> Any:
        return candidate(config, FreeOfQueue(live), event, check)  # type: ignore[arg-type]

    class FreeOfQueue:
        def __init__(self, live: Any) -> None:
            self._live = live

        @property
        def state(self) -> Any:
            return replace(self._live.state, queue=())

        def __getattr__(self, name: str) -> Any:
            return getattr(self._live, name)

    with patch.object(run_start, "_candidate", hasty):
        yield


@mutation("a driver steals the lease of any other")
def always_steal() -> Iterator[None]:
    drive = run_loop.drive

    class Stealing:
        def __init__(self, store: Any) -> None:
            self._store = store

        def acquire(self, *args: Any, **options: Any) -> Any:
            return self._store.acquire(*args, steal="impatient", **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    async def stealing(runtime: Any, config: Any, live: Any, *rest: Any) -> int:
        if not isinstance(live.store, Stealing):
            live.store = Stealing(live.store)
        return await drive(runtime, config, live, *rest)

    with patch.object(drivers, "drive", stealing):
        yield


@mutation("a driver that shuts down does not hand its run over")
def no_handover() -> Iterator[None]:
    async def forget(driving: Any) -> None:
        return None

    with patch.object(run_loop, "hand_over", forget):
        yield


@mutation("a driver continues the run of another without a record of it")
def silent_resume() -> Iterator[None]:
    async def quietly(driving: Any) -> None:
        driving.take(driving.run.id)

    with (
        patch.object(driver.Driving, "mine", property(_taken)),
        patch.object(run_loop, "take_up", quietly),
    ):
        yield


def _taken(driving: Any) -> bool:
    run = driving.state.active
    return run is None or run.id == driving.took


@mutation("a driver that takes a run up drops the text that was streamed before")
def drop_drafts() -> Iterator[None]:
    class Payloads:
        @staticmethod
        def MessageInterrupted(**fields: Any) -> Any:
            return ev.MessageInterrupted(**{**fields, "text": ""})

        def __getattr__(self, name: str) -> Any:
            return getattr(ev, name)

    with patch.object(perform, "ev", Payloads()):
        yield


@mutation("the text of a message that is cut short is not kept")
def drop_interrupted() -> Iterator[None]:
    def nothing(*_: Any, **__: Any) -> list[NewEvent]:
        return []

    with (
        patch.object(model_call, "interrupted", nothing),
        patch.object(perform, "interrupted", nothing),
    ):
        yield


@mutation("the append of a driver is retried with new ids")
def retry_with_new_ids() -> Iterator[None]:
    async def append(self: Any, events: Any, expected: int | None, **rest: Any) -> int:
        live = self._live
        for _ in range(20):
            try:
                done = await self._store.append(
                    live.key, events, expected=expected, fence=self.lease, log=live.log
                )
            except StoreUnavailable:
                events = [replace(event, id=new_id()) for event in events]
                await asyncio.sleep(0.1)
            else:
                return int(done.head)
        raise StoreUnavailable(problem="no reply")

    with patch.object(lease.Hold, "append", append):
        yield


@mutation("crashes of a run's drivers are not counted")
def count_no_crashes() -> Iterator[None]:
    resumed = folding.STEPS["run.resumed"]

    def uncounted(work: Any, event: Event, payload: Any) -> None:
        resumed(work, event, payload)
        work.amend(crashes=0)

    with patch.dict(folding.STEPS, {"run.resumed": uncounted}):
        yield


# Workers


@mutation("some wake-ups of drivers are lost")
def lose_wakeups() -> Iterator[None]:
    wake, due = drivers.Drivers.wake, every(3)

    def losing(self: Any, live: Live) -> None:
        if not due():
            wake(self, live)

    with patch.object(drivers.Drivers, "wake", losing):
        yield


@mutation("a wake-up that comes while the log is driven is lost")
def lose_repeated_wakeups() -> Iterator[None]:
    wake = drivers.Drivers.wake

    def losing(self: Any, live: Live) -> None:
        if live.key not in self._tasks:
            wake(self, live)

    with patch.object(drivers.Drivers, "wake", losing):
        yield


@mutation("the search for due logs finds none")
def blind_search() -> Iterator[None]:
    async def none(self: Any, room: int, busy: Any) -> Any:
        return recovery.Found([], False)

    with patch.object(recovery.DueLogs, "due", none):
        yield


@mutation("a process that can recover one log at a time never frees its slot")
def keep_slots() -> Iterator[None]:
    init = slots.Slots.__init__

    def one(self: Any, *_: Any) -> None:
        init(self, 1)

    with (
        patch.object(slots.Slots, "__init__", one),
        patch.object(slots.Slots, "give", lambda *_: None),
    ):
        yield


@mutation("no alarm is set for the time at which a log is due")
def no_alarms() -> Iterator[None]:
    with patch.object(drivers.Alarms, "set", lambda *_: None):
        yield


# Timers and sub-agents


@mutation("timers fire twice")
def timer_twice() -> Iterator[None]:
    write = driver.Driving.write

    async def twice(self: Any, *events: NewEvent, expected: int | None = None) -> bool:
        fired = [e for e in events if e.id.startswith("timer:")]
        again = [replace(event, id=new_id()) for event in fired]
        return await write(self, *again, *events, expected=expected)

    with patch.object(driver.Driving, "write", twice):
        yield


@mutation("timers never fire")
def timer_never() -> Iterator[None]:
    by_the_clock = decide._by_the_clock

    def silent(state: Any, now: int) -> Any:
        step = by_the_clock(state, now)
        return None if isinstance(step, steps.Fire) else step

    with patch.object(decide, "_by_the_clock", silent):
        yield


@mutation("firings of schedules are written twice")
def tick_twice() -> Iterator[None]:
    write = driver.Driving.write

    async def twice(self: Any, *events: NewEvent, expected: int | None = None, **rest: Any) -> bool:
        fired = [e for e in events if e.id.startswith("tick:")]
        again = [replace(event, id=new_id()) for event in fired]
        return await write(self, *again, *events, expected=expected, **rest)

    with patch.object(driver.Driving, "write", twice):
        yield


@mutation("schedules never fire")
def tick_never() -> Iterator[None]:
    by_the_clock = decide._by_the_clock

    def silent(state: Any, now: int) -> Any:
        step = by_the_clock(state, now)
        return None if isinstance(step, steps.Tick) else step

    with patch.object(decide, "_by_the_clock", silent):
        yield


@mutation("of several firings that were missed, only the first one is made")
def tick_first_only() -> Iterator[None]:
    firing = schedule_firing.firing

    def first(*args: Any) -> Any:
        made = firing(*args)
        return made._replace(sent=made.sent[:1])

    with patch.object(schedule_firing, "firing", first):
        yield


@mutation("a schedule that was paused fires all the same")
def tick_paused() -> Iterator[None]:
    ticking = State.ticking.fget  # type: ignore[attr-defined]

    def all_of_them(self: State) -> Any:
        awake = {name: replace(known, paused=False) for name, known in self.schedules.items()}
        return ticking(replace(self, schedules=awake))

    with patch.object(State, "ticking", property(all_of_them)):
        yield


@mutation("the result of a sub-agent reaches its parent twice")
def report_twice() -> Iterator[None]:
    report = perform._STEPS[steps.Report]

    async def twice(driving: Any, step: Any) -> None:
        sub = driving.state.sub
        payload = ev.PendingSettled(id=sub.item, outcome="answered", answer={"text": "again"})
        event = NewEvent.of("pending.settled", payload, actor="simulated")
        with contextlib.suppress(HeadMoved):
            await driving.live.store.append(delegation._key(driving, sub.parent), [event])
        await report(driving, step)

    with patch.dict(perform._STEPS, {steps.Report: twice}):
        yield


@mutation("the result of a sub-agent never reaches its parent")
def report_never() -> Iterator[None]:
    async def silent(driving: Any, step: Any) -> None:
        item = driving.state.sub.item
        done = ev.ThreadReported(item=item, due=delegation._due(driving))
        await driving.write(NewEvent.of("thread.reported", done, id=ids.reported_id(item)))

    with patch.dict(perform._STEPS, {steps.Report: silent}):
        yield


@mutation("sub-agents continue after the run that they work for has ended")
def orphans() -> Iterator[None]:
    async def leave(driving: Any) -> None:
        return None

    with patch.object(perform, "stop_all", leave):
        yield


# Prompts and state


@mutation("a prompt leaves out the results of tools")
def prompt_without_results() -> Iterator[None]:
    add = History.add

    def without(self: History, event: Event) -> None:
        if event.kind == "tool.finished":
            self._calls.discard(event.id.removeprefix("done:"))
        else:
            add(self, event)

    with patch.object(History, "add", without):
        yield


@mutation("concurrent changes of the user state overwrite each other")
def blind_state_changes() -> Iterator[None]:
    async def append_if(self: Any, *events: NewEvent, live: Live, head: int) -> bool:
        with contextlib.suppress(HeadMoved):
            await self.append(*events, live=live, expected=head)
        return True

    with patch.object(base.SessionCore, "append_if", append_if):
        yield


# Playing


class Found(NamedTuple):
    """What came of a mutation: after how many schedules which judge reported what."""

    mutation: str
    schedule: int | None
    seed: str = ""
    level: str = ""
    judge: str = ""
    problem: str = ""
    seconds: float = 0.0


class Endless(BaseException):
    """A schedule took more CPU time than any schedule of the unchanged product."""


def _calm(scenario: Scenario) -> Scenario:
    return replace(scenario, faults=())


def _burst(scenario: Scenario) -> Scenario:
    near = [replace(step, at=round(step.at / 16, 4)) for step in scenario.steps]
    return replace(scenario, steps=tuple(near), faults=())


def _tight(scenario: Scenario) -> Scenario:
    """Short runs in one session, each message about when the run before it ends."""
    near = [
        replace(step, at=round(0.1 + n * 0.037 + step.at / 900, 4), action="send", program="",
                session="s0", twice=False)
        for n, step in enumerate(scenario.steps)
    ]  # fmt: skip
    return replace(scenario, steps=tuple(near), faults=())


def _hooked(scenario: Scenario) -> Scenario:
    """Many short runs in one session, by processes whose agents have hooks, and others."""
    random = Random(scenario.seed)
    places = scenario.processes
    steps = [
        Step(
            at=round(0.1 + n * 0.04 + random.uniform(0.0, 0.04), 4),
            action="send",
            tag=f"m{n}",
            place=random.randrange(places),
        )
        for n in range(80)
    ]
    versions = tuple(place % 2 for place in range(places))
    return replace(scenario, steps=tuple(steps), faults=(), versions=versions)


def _sluggish(scenario: Scenario) -> Scenario:
    """The same, on a store that is slow for a while."""
    slow = InjectedFault(at=0.1, kind="slow", value=0.3)
    return replace(_hooked(scenario), faults=(slow,))


def _pairs(scenario: Scenario) -> Scenario:
    """Pairs of messages without faults, to processes whose agents have no hooks: the second arrives
    about when the run of the first ends, and no other message follows soon."""
    random, steps = Random(scenario.seed), list[Step]()
    for n in range(60):
        at = 0.1 + 0.4 * n
        for name, when in (("a", at), ("b", at + random.uniform(0.011, 0.03))):
            place = random.randrange(scenario.processes)
            steps.append(Step(at=round(when, 5), action="post", tag=f"{name}{n}", place=place))
    return replace(
        scenario, steps=tuple(steps), faults=(), versions=(), turns=200, summarise=None, slots=1000
    )


def _alone(scenario: Scenario) -> Scenario:
    """The same with one process."""
    return replace(_pairs(scenario), processes=1)


def _unanswered(scenario: Scenario) -> Scenario:
    """The same, on a network that loses replies all the time."""
    random = Random(scenario.seed)
    lost = [
        InjectedFault(at=round(0.2 + 0.3 * n, 2), kind="lost_reply", place=random.randrange(3))
        for n in range(12)
    ]
    return replace(_hooked(scenario), faults=tuple(lost))


def _abandoned(scenario: Scenario) -> Scenario:
    """Messages whose process crashes right after it wrote them, each followed by a message of
    another process."""
    steps, faults = [], []
    for n in range(6):
        at = 0.1 + 6.0 * n
        first = Step(at=at, action="send", session=f"s{n}", tag=f"a{n}", place=1)
        second = replace(first, at=at + 1.0, action="post", tag=f"b{n}", place=0)
        third = replace(first, at=at + 1.1, tag=f"c{n}")
        steps += [first, second, third]
        faults.append(InjectedFault(at=at + 0.9, kind="lost_process"))
    versions = (1,)  # the first process has hooks: it writes a message without its run
    return replace(scenario, steps=tuple(steps), faults=tuple(faults), versions=versions)


def _talkative(scenario: Scenario) -> Scenario:
    """Long answers, which users cut short."""
    random = Random(scenario.seed)
    actions: tuple[Any, ...] = ("send", "send", "limited", "abort", "interrupt")
    steps = [
        replace(step, action=random.choice(actions), program="long", session="s0", twice=False)
        for step in scenario.steps
    ]
    return replace(scenario, steps=tuple(steps), faults=())


def _counting(scenario: Scenario) -> Scenario:
    """Users who change the state of one session at the same time, in several processes."""
    steps = [
        Step(at=round(0.5 + 0.3 * (n // 4), 1), action="state", tag=f"m{n}", place=n)
        for n in range(24)
    ]
    first = Step(at=0.1, action="send", tag="first")
    return replace(scenario, steps=(first, *steps), faults=())


def _scheduled(scenario: Scenario) -> Scenario:
    """Users who set, pause and remove schedules, in several processes; other steps and the faults
    stay."""
    steps = [
        Step(at=round(0.4 + 1.1 * n, 1), action="schedule", tag=f"r{n}", place=n, pick=pick)
        for n, pick in enumerate(Random(scenario.seed).sample(range(60), 6))
    ]
    kept = [step for step in scenario.steps if step.action not in ("delete", "copy")]
    both = sorted([*kept, *steps], key=lambda step: step.at)
    return replace(scenario, steps=tuple(both))


def _results(scenario: Scenario) -> Scenario:
    """Runs with several calls, on a network that loses replies all the time."""
    steps = [
        Step(at=0.1 + 2 * n, action="send", tag=f"m{n}", program="note+charge+slow", place=n)
        for n in range(6)
    ]
    lost = [
        InjectedFault(at=round(0.14 + 0.37 * n, 2), kind="lost_reply", place=n // 5)
        for n in range(30)
    ]
    return replace(scenario, steps=tuple(steps), faults=tuple(lost))


def _votes(scenario: Scenario) -> Scenario:
    """Calls that need two approvals, and one person who approves all the time."""
    actions: tuple[Any, Any] = ("send", "approve")
    steps = [
        replace(step, action=actions[n % 2], program="wire", session="s0", pick=0)
        for n, step in enumerate(scenario.steps)
    ]
    return replace(scenario, steps=tuple(steps), faults=())


def _only(kind: Any, value: float = 0.0) -> Callable[[Scenario], Scenario]:
    """Faults of one kind only."""

    def change(scenario: Scenario) -> Scenario:
        struck = [replace(f, kind=kind, value=value or f.value or 1.0) for f in scenario.faults]
        return replace(scenario, faults=tuple(struck))

    return change


def _as_drawn(scenario: Scenario) -> Scenario:
    return scenario


LEVELS: dict[str, Callable[[Scenario], Scenario]] = {
    "plain": _as_drawn,
    "full": _as_drawn,
    "calm": _calm,
    "burst": _burst,
    "tight": _tight,
    "votes": _votes,
    "hooked": _hooked,
    "sluggish": _sluggish,
    "pairs": _pairs,
    "alone": _alone,
    "unanswered": _unanswered,
    "abandoned": _abandoned,
    "talkative": _talkative,
    "counting": _counting,
    "results": _results,
    "rolling": _only("restart", 0.5),
    "frozen": _only("pause", 7.0),
    "lossy": _only("lost_reply"),
    "cut off": _only("lost_request"),
    "stalled": _only("model_stall"),
    "crashing": _only("crash", 1.0),
    "scheduled": _scheduled,
}


def schedule(number: int) -> tuple[Scenario, str]:
    """The schedule with this number, and its level: as drawn (plain or full), or a full one whose
    faults or steps are of one kind, which strikes one mechanism more often."""
    level = [*LEVELS][number % len(LEVELS)]
    return LEVELS[level](draw(str(number), "plain" if level == "plain" else "full")), level


def judge_of(problem: str) -> str:
    """The judge that reported a problem."""
    name = problem.partition(":")[0]
    if name in judges.JUDGES or name in judges.WATCHES:
        return name
    return "liveness" if name.startswith(("not settled", "endless")) else "errors"


def play(scenario: Scenario) -> list[str]:
    """The problems of one schedule."""

    def endless(*_: Any) -> None:
        raise Endless

    before = signal.signal(signal.SIGVTALRM, endless)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU)
    try:
        with patch.object(simulation, "SETTLING", 120.0):
            return simulation.simulate(scenario).problems
    except Endless:
        return [f"endless: the schedule did not end within {CPU:.0f} s of CPU time"]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def find(name: str, most: int = MOST, first: int = 0) -> Found:
    """Play schedules under a mutation until one of them is found wrong."""
    began = time.process_time()
    with MUTATIONS[name].apply():
        for number in range(first, first + most):
            scenario, level = schedule(number)
            problems = play(scenario)
            if number % 20 == 19:
                gc.collect()
            if problems:
                took = time.process_time() - began
                problem = problems[0]
                tried = number - first + 1
                return Found(name, tried, str(number), level, judge_of(problem), problem, took)
    return Found(name, None, seconds=time.process_time() - began)


PAGE = """# Mutations

This page is for people who want to know what the judges of the [simulation](simulation.md) notice.
Each row is a change that breaks Holdfast, the number of the first schedule that fails with it, and
the judge that reports it. Schedules are played in a fixed order, at most {most} for a mutation.

`python -m tests.simulation.mutations --markdown` prints this page.

| mutation | what is broken | schedule | level | judge |
|---|---|---|---|---|
"""


def _row(found: Found) -> str:
    """The row of a mutation in the table of the page."""
    about = MUTATIONS[found.mutation].about
    if found.schedule is not None:
        return (
            f"| `{found.mutation}` | {about} | {found.schedule} | {found.level} | {found.judge} |"
        )
    why = EQUIVALENT.get(found.mutation, "not found")
    return f"| `{found.mutation}` | {about} | - | - | {why} |"


def main(arguments: list[str] | None = None) -> int:
    """Print the table of mutations; the result is the number of those that were not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations")
    parser.add_argument("--most", type=int, default=MOST, help="schedules per mutation")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--markdown", action="store_true", help="print the table as a page")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations to try (default: all)")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in MUTATIONS]:
        parser.error(f"unknown mutations: {', '.join(unknown)}")
    missed = 0
    if given.markdown:
        sys.stdout.write(PAGE.format(most=given.most))
    for name in given.names or MUTATIONS:
        found = find(name, given.most)
        known = "equivalent" if name in EQUIVALENT else "NOT FOUND"
        missed += found.schedule is None and name not in EQUIVALENT
        if given.json:
            line = json.dumps(found._asdict())
        elif given.markdown:
            line = _row(found)
        elif found.schedule is None:
            line = f"{name:24} {known} in {given.most} schedules ({found.seconds:.1f} s)"
        else:
            place = f"{found.schedule:4} ({found.level})"
            line = f"{name:24} {place:16} {found.judge:10} {found.problem[:110]}"
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return min(missed, 100)


if __name__ == "__main__":
    sys.exit(main())
