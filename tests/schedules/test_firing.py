"""What a schedule sends: missed and overlapping firings, and each due time once, whatever the order
of crashes and takeovers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.events import Event, MessageReceived, NewEvent, TimerScheduled, TimerTicked
from holdfast.harness.agents.limits import RunBounds
from holdfast.harness.loop.decide import decide
from holdfast.harness.loop.schedule_firing import LATE, MOST, fired, firing
from holdfast.harness.loop.steps import Idle, SetDue, Start, Tick
from holdfast.log.state import QueuedInput, Run, Schedule, State, fold
from holdfast.log.state.values import WAITING

MINUTE = 60_000
HOUR = 60 * MINUTE
NOW = 1_800_000_000_000 // HOUR * HOUR
BOUNDS = RunBounds()


def hourly(**options: Any) -> TimerScheduled:
    return TimerScheduled(name="s", text="go", **{"next": NOW, "every": HOUR, **options})


def state(next: int, **fields: Any) -> State:
    return State(schedules={"s": Schedule(1, next)}, **fields)


def sent(
    payload: TimerScheduled, now: int, room: int = MOST, **fields: Any
) -> tuple[list[int], int, int | None, int]:
    """The hours (after the first due time) that get a message, the last that was handled, the next
    one, and how many were skipped."""
    before = state(payload.next, **fields)
    made = firing(before, before.schedules["s"], payload, now, room)
    hours = [(at - payload.next) // HOUR for at in made.sent]
    after = None if made.next is None else (made.next - payload.next) // HOUR
    return hours, (made.due - payload.next) // HOUR, after, made.skipped


LATER = NOW + 3 * HOUR + 5 * MINUTE  # hours 0 to 3 were due, all of them long ago


@pytest.mark.parametrize(
    ("missed", "overlap", "now", "expected"),
    [
        ("skip", "skip", NOW, ([0], 0, 1, 0)),
        ("skip", "skip", NOW + LATE, ([0], 0, 1, 0)),
        ("skip", "skip", NOW + LATE + 1, ([], 0, 1, 1)),
        ("skip", "queue", LATER, ([], 3, 4, 4)),
        ("once", "skip", LATER, ([3], 3, 4, 3)),
        ("once", "queue", LATER, ([3], 3, 4, 3)),
        ("all", "queue", LATER, ([0, 1, 2, 3], 3, 4, 0)),
        # Three were missed, and the last one is in time.
        ("skip", "skip", NOW + 3 * HOUR, ([3], 3, 4, 3)),
        ("once", "skip", NOW + 3 * HOUR, ([2], 3, 4, 3)),
        ("once", "queue", NOW + 3 * HOUR, ([2, 3], 3, 4, 2)),
    ],
)
def test_what_is_missed(missed: Any, overlap: Any, now: int, expected: Any) -> None:
    assert sent(hourly(missed=missed, overlap=overlap), now) == expected


def run(start: int, status: Any = "running") -> Run:
    return Run(id="r", status=status, seq=2, at=start, since=start)


@pytest.mark.parametrize(
    ("missed", "overlap", "fields", "expected"),
    [
        # A run is open, and its driver was at work all the time: nothing was missed.
        ("skip", "skip", {"run": run(NOW - 9), "driven": LATER}, ([], 3, 4, 4)),
        ("skip", "queue", {"run": run(NOW - 9), "driven": LATER}, ([0, 1, 2, 3], 3, 4, 0)),
        # A run was busy for the first two hours and ended; then nobody was there.
        ("skip", "queue", {"run": run(NOW - 9, "done"), "driven": NOW + HOUR}, ([0, 1], 3, 4, 2)),
        (
            "once",
            "queue",
            {"run": run(NOW - 9, "done"), "driven": NOW + HOUR},
            ([0, 1, 3], 3, 4, 1),
        ),
        ("once", "skip", {"run": run(NOW - 9, "done"), "driven": NOW + HOUR}, ([3], 3, 4, 3)),
        # Nobody was there for the first hour; then a run was busy.
        ("once", "queue", {"run": run(NOW + 9, "done"), "driven": LATER}, ([0, 1, 2, 3], 3, 4, 0)),
        ("skip", "queue", {"run": run(NOW + 9, "done"), "driven": LATER}, ([1, 2, 3], 3, 4, 1)),
        # A run is open whose driver crashed.
        ("once", "queue", {"run": run(NOW - 9), "driven": NOW - 5}, ([3], 3, 4, 3)),
        ("once", "skip", {"run": run(NOW - 9), "driven": NOW - 5}, ([], 3, 4, 4)),
    ],
)
def test_what_happens_to_firings_during_a_run(
    missed: Any, overlap: Any, fields: Any, expected: Any
) -> None:
    assert sent(hourly(missed=missed, overlap=overlap), LATER, **fields) == expected


def test_a_message_that_is_still_queued_skips_the_next_firing() -> None:
    waiting = (QueuedInput(5),)
    for overlap, of, count in (("skip", 5, 0), ("skip", 4, 1), ("queue", 5, 1)):
        before = State(schedules={"s": Schedule(1, NOW, sent=of)}, queue=waiting)
        payload = hourly(overlap=overlap)
        made = firing(before, before.schedules["s"], payload, NOW, MOST)
        assert len(made.sent) == count, (overlap, of)


def test_many_missed_firings_follow_in_several_appends() -> None:
    payload = hourly(missed="all", overlap="queue", every=MINUTE)
    made = firing(state(NOW), Schedule(1, NOW), payload, NOW + 999 * MINUTE, MOST)
    assert (len(made.sent), made.next) == (MOST, NOW + MOST * MINUTE)


def test_a_full_queue_gets_no_more_messages_and_is_not_due() -> None:
    full = tuple(QueuedInput(n) for n in range(2, WAITING + 2))
    waiting = state(NOW, queue=full, run=run(NOW, "waiting"))
    assert not isinstance(decide(waiting, BOUNDS, NOW), Tick)
    assert waiting.alarm is None
    room = replace(waiting, queue=full[1:])
    assert decide(room, BOUNDS, NOW) == Tick(("s",))
    assert room.alarm == NOW


def test_a_paused_schedule_is_not_due() -> None:
    paused = State(schedules={"s": Schedule(1, NOW, paused=True)})
    assert decide(paused, BOUNDS, NOW + HOUR) == Idle()


class Log:
    """A log, and drivers that take it over from one another: each decides on what it has read, and
    its append fails if another one was first, or is lost or repeated by a crash."""

    def __init__(self, payload: TimerScheduled) -> None:
        self.payload = payload
        self.events: list[Event] = []
        self._append([NewEvent.of("timer.scheduled", payload)], payload.next)

    def _append(self, events: Sequence[NewEvent], now: int) -> None:
        known = {event.id for event in self.events}
        new = [event for event in events if event.id not in known]
        self.events += [e.numbered(len(self.events) + n, now) for n, e in enumerate(new, 1)]

    def drive(self, now: int, read: int, *, lost: bool, repeated: bool) -> None:
        """One step of a driver that has read all events but the last `read`."""
        head = max(1, len(self.events) - read)
        seen = fold(self.events[:head])
        step = decide(seen, BOUNDS, now)
        if isinstance(step, Tick):
            events = fired(seen, self.payload, now, MOST)
        elif isinstance(step, Start):
            events = [
                NewEvent.of("run.started", {"inputs": [step.input]}, run=f"r{head}", id=f"r{head}"),
                NewEvent.of("run.finished", {"due": seen.alarm}, run=f"r{head}"),
            ]
        elif isinstance(step, SetDue):
            events = [NewEvent.of("timer.planned", {"due": step.due})]
        else:
            return
        if head == len(self.events) and not lost:
            self._append(events, now)
            if repeated:  # the answer was lost, and the same append is tried again
                self._append(events, now)

    def messages(self) -> list[int]:
        found = [e.payload(MessageReceived) for e in self.events if e.kind == "message.received"]
        return [message.metadata["due"] for message in found]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 4 * MINUTE),  # ms until the next driver looks
        st.integers(0, 2),  # events that it has not read yet
        st.booleans(),  # it crashes before its append
        st.booleans(),  # it crashes after it
    ),
    max_size=30,
)


@given(steps=STEPS, every=st.integers(MINUTE, 3 * MINUTE))
def test_a_schedule_fires_at_exactly_its_due_times_whatever_crashes(
    steps: list[tuple[int, int, bool, bool]], every: int
) -> None:
    log = Log(hourly(every=every, missed="all", overlap="queue"))
    now = NOW
    for wait, behind, lost, repeated in steps:
        now += wait
        log.drive(now, behind, lost=lost, repeated=repeated)
    for _ in range(len(steps) * 8 + 8):  # at last a driver that is not disturbed
        log.drive(now, 0, lost=False, repeated=False)
    assert log.messages() == [*range(NOW, now + 1, every)]
    after = fold(log.events)
    assert after.queue == ()
    assert after.due == after.schedules["s"].next == log.messages()[-1] + every


@given(
    steps=STEPS,
    every=st.integers(MINUTE, 3 * MINUTE),
    missed=st.sampled_from(["skip", "once"]),
    overlap=st.sampled_from(["skip", "queue"]),
)
def test_each_due_time_is_sent_or_counted_as_skipped(
    steps: list[tuple[int, int, bool, bool]], every: int, missed: Any, overlap: Any
) -> None:
    log = Log(hourly(every=every, missed=missed, overlap=overlap))
    now = NOW
    for wait, behind, lost, repeated in steps:
        now += wait
        log.drive(now, behind, lost=lost, repeated=repeated)
    for _ in range(len(steps) * 8 + 8):
        log.drive(now, 0, lost=False, repeated=False)
    due = [*range(NOW, now + 1, every)]
    sent = log.messages()
    assert sent == sorted(set(sent))
    assert {*sent} <= {*due}
    ticked = [e.payload(TimerTicked) for e in log.events if e.kind == "timer.ticked"]
    assert sum(one.sent for one in ticked) == len(sent)
    assert sum(one.skipped for one in ticked) == len(due) - len(sent)
    assert ticked[-1].next == due[-1] + every
