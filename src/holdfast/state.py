"""State: what the events of one log add up to. Pure, and bounded however long the log is.

`fold` reads no clock and does no I/O, so every process that has read the same events
holds the same state. It keeps numbers and names, never texts: a text is in the event
whose number stands here. The transcript is no part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from . import events as ev
from .codec import LIMITS, typed, understood
from .events import Event

VERSION = "1"  # of this fold; snapshots made by another one are not used

# The first words of our kinds, of some to come as well. A process that meets one it does
# not know would drive past what a newer version meant by it; all other words are foreign.
RESERVED = {kind.partition(".")[0] for kind in ev.KINDS}.union(
    ("abort", "compaction", "grant", "mode", "model", "progress", "queue", "state")
)
OPEN_CALLS = 256  # of earlier messages and the latest together; see _message_completed

CallStatus: TypeAlias = Literal[
    "proposed",
    "waiting",  # for an item that is pending
    "approved",  # this and what follows: how that item was settled
    "denied",
    "answered",
    "expired",
    "superseded",
    "abandoned",
    "started",
]


class Run(Struct, frozen=True):
    """The latest run; `id` is None for a driver that does not name its runs."""

    id: str | None
    status: Literal["running", "waiting", "done", "failed", "aborted", "interrupted"]


class OpenCall(Struct, frozen=True, omit_defaults=True):
    """A tool call without an outcome: its message is event `seq`, its status came with
    event `since`, and `started` is the event that told of the latest start, if any did."""

    name: str
    seq: int
    status: CallStatus
    since: int
    started: int | None = None


class OpenItem(Struct, frozen=True, omit_defaults=True):
    """Something that waits for an answer; its wording is in event `seq`."""

    what: str
    seq: int
    at: int
    call: str | None = None
    expires: int | None = None


class State(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is so after event `head`. Open calls and pending items stand under their ids,
    oldest first. `too_new` is the first event that this version does not understand:
    as long as it is set, do not drive."""

    head: int = 0
    run: Run | None = None
    calls: dict[str, OpenCall] = {}
    pending: dict[str, OpenItem] = {}
    usage: dict[str, int] = {}
    too_new: int | None = None

    @property
    def safe(self) -> bool:
        """Whether nothing is open here: a place to fork at, or to begin a window."""
        running = self.run is not None and self.run.status in ("running", "waiting")
        return not (running or self.calls or self.pending)


def fold(events: Iterable[Event], start: State | None = None) -> State:
    """The state after `events`, which follow those of `start`; what `start` has seen is
    passed over. Never raises for what an event holds."""
    work = _Work(start or State())
    for event in events:
        work.add(event)
    return work.state()


class _Work:
    """A state that may change: one copy per fold instead of one per event."""

    def __init__(self, start: State) -> None:
        self.head = start.head
        self.run = start.run
        self.calls = dict(start.calls)
        self.pending = dict(start.pending)
        self.usage = dict(start.usage)
        self.too_new = start.too_new

    def state(self) -> State:
        return State(**vars(self))

    def add(self, event: Event) -> None:
        if event.seq <= self.head:
            return
        self.head = event.seq
        if not understood(event):
            if self.too_new is None and event.kind.partition(".")[0] in RESERVED:
                self.too_new = event.seq
        elif (step := _STEPS.get(event.kind)) is not None:
            step(self, event, typed(event))

    def mark(self, call: str | None, event: Event, status: CallStatus, **more: int) -> None:
        if call is not None and call in self.calls:
            changes = {"status": status, "since": event.seq, **more}
            self.calls[call] = msgspec.structs.replace(self.calls[call], **changes)


# A payload is None where it was erased or cannot be read. What the envelope still says
# (the kind, the run, the ids behind `done:` and `settle:`) counts even then, so that an
# erasure neither opens again what was closed nor repeats what was begun.


def _thread_forked(work: _Work, event: Event, p: ev.ThreadForked | None) -> None:
    # As in the row of a fork: nothing of the parent's is open in it or spent by it.
    work.run = None
    work.calls, work.pending, work.usage = {}, {}, {}


def _message_completed(work: _Work, event: Event, p: ev.MessageCompleted | None) -> None:
    if p is None:
        return
    for call in p.calls:
        work.calls.setdefault(call.id, OpenCall(call.name, event.seq, "proposed", event.seq))
    # In a log that nobody drives outcomes may never come: then the oldest calls go.
    while len(work.calls) > OPEN_CALLS:
        oldest = next(iter(work.calls))
        if work.calls[oldest].seq == event.seq:
            break
        del work.calls[oldest]
    for name, count in p.usage.items():
        if name in work.usage or len(work.usage) < LIMITS.map_entries:
            work.usage[name] = work.usage.get(name, 0) + count


def _run_started(work: _Work, event: Event, p: ev.RunStarted | None) -> None:
    work.run = Run(event.run, "running")


def _run_waiting(work: _Work, event: Event, p: ev.RunWaiting | None) -> None:
    work.run = Run(event.run, "waiting")


def _run_finished(work: _Work, event: Event, p: ev.RunFinished | None) -> None:
    work.run = Run(event.run, "interrupted" if p is None else p.status)


def _tool_started(work: _Work, event: Event, p: ev.ToolStarted | None) -> None:
    # Which one was erased: any open call may have acted, but for those that were kept back.
    able = [id for id, call in work.calls.items() if call.status not in ("waiting", "denied")]
    for id in able if p is None else [p.call]:
        work.mark(id, event, "started", started=event.seq)


def _tool_finished(work: _Work, event: Event, p: ev.ToolFinished | None) -> None:
    work.calls.pop(event.id.removeprefix("done:") if p is None else p.call, None)


def _pending_opened(work: _Work, event: Event, p: ev.PendingOpened | None) -> None:
    if p is None or p.id in work.pending:
        return
    work.pending[p.id] = OpenItem(p.what, event.seq, event.at, p.call, p.expires)
    work.mark(p.call, event, "waiting")


def _pending_settled(work: _Work, event: Event, p: ev.PendingSettled | None) -> None:
    item = work.pending.pop(event.id.removeprefix("settle:") if p is None else p.id, None)
    if item is None or item.call not in work.calls or work.calls[item.call].status != "waiting":
        return
    # Never a yes that cannot be read, nor one while something else is asked; the first no stays.
    outcome = "abandoned" if p is None else p.outcome
    asked = any(other.call == item.call for other in work.pending.values())
    if not (asked and outcome in ("approved", "answered")):
        work.mark(item.call, event, outcome)


_STEPS: dict[str, Callable[[_Work, Event, Any], None]] = {
    "thread.forked": _thread_forked,
    "message.completed": _message_completed,
    "run.started": _run_started,
    "run.waiting": _run_waiting,
    "run.finished": _run_finished,
    "tool.started": _tool_started,
    "tool.finished": _tool_finished,
    "pending.opened": _pending_opened,
    "pending.settled": _pending_settled,
}
