"""Fires recurring schedules: which of the due times get a message, and the events of these."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from ...errors import InvalidValue
from ...log import events as ev
from ...log.codec import LIMITS
from ...log.events import NewEvent, ids
from ...log.state import Schedule, State
from ...log.state.values import WAITING
from ...sessions.recurrence import Recurrence
from .driver import Driving
from .steps import Tick

LATE = 60_000  # ms past its time from which a firing is missed
MOST = 100  # messages of one append
COUNTED = 1_000  # skipped times that are counted at once


class Firing(NamedTuple):
    """The due times that get a message, the latest time that is handled, the next time, and how
    many times were skipped."""

    sent: tuple[int, ...]
    due: int
    next: int | None
    skipped: int


def firing(
    state: State, schedule: Schedule, payload: ev.TimerScheduled, now: int, room: int
) -> Firing:
    """Decide what a schedule does that is due at `now`, with room for so many messages.

    A firing that nobody made in time is missed, unless a run was busy then: this one overlaps with
    the run."""
    times = Recurrence(payload)
    at, sent, skipped = schedule.next, list[int](), 0
    due = schedule.next or 0
    queued = any(item.seq == schedule.sent for item in state.queue)
    while at is not None and at <= now and len(sent) < room:
        busy = _busy(state, at)
        if at < now - LATE and not busy and payload.missed != "all":
            end = _missed_until(state, at, now)
            due, skipped = times.last_before(end, at), skipped + times.count(at, end, COUNTED)
            wanted = payload.missed == "once"
        else:
            due, skipped, wanted = at, skipped + 1, True
        open = busy or state.active is not None or queued or bool(sent)
        if wanted and not (open and payload.overlap == "skip"):
            sent.append(due)
            skipped -= 1
        at = times.after(due)
    return Firing(tuple(sent), due, at, skipped)


def _busy(state: State, at: int) -> bool:
    """Return whether the latest run was driven at this time."""
    return state.run is not None and state.run.at <= at <= state.driven


def _missed_until(state: State, at: int, now: int) -> int:
    """Return the end of the time from `at` on in which firings are missed."""
    end = now - LATE
    return min(end, state.run.at) if state.run is not None and at < state.run.at else end


async def tick(driving: Driving, step: Tick) -> None:
    """Write the messages of schedules that are due, and when each is due next."""
    events, state = list[NewEvent](), driving.state
    room = min(MOST, WAITING - len(state.queue))
    for name in step.names:
        size = sum(len(event.data) for event in events)
        if room <= 0 or size > LIMITS.append_bytes // 8:
            break  # the rest follows in the next step
        made = await _made(driving, state, name, room)
        room -= len(made) - 1
        events += made
    await driving.write(*events, expected=state.head)


async def _made(driving: Driving, state: State, name: str, room: int) -> list[NewEvent]:
    """Return the events of one schedule that is due. One that was erased, or whose session has
    expired, ends; one that cannot be computed here is paused."""
    schedule = state.schedules[name]
    payload = await driving.live.payload(schedule.seq, ev.TimerScheduled)
    if payload is None or driving.shared.state.expired:
        ended, id = ev.TimerUnscheduled(name=name), ids.unscheduled_id(schedule.seq)
        return [NewEvent.of("timer.unscheduled", ended, id=id)]
    try:
        # In a thread: a time zone is read from a file, and rare times take a while to find.
        return await asyncio.to_thread(fired, state, payload, driving.now(), room)
    except InvalidValue as error:
        driving.log.error("schedule_failed", category="run", error=error, schedule=name)
        return [NewEvent.of("timer.paused", ev.TimerPaused(name=name))]


def fired(state: State, payload: ev.TimerScheduled, now: int, room: int) -> list[NewEvent]:
    """Return the events of a schedule that is due at `now`."""
    name, schedule = payload.name, state.schedules[payload.name]
    fits = max(1, LIMITS.append_bytes // 8 // (len(payload.text) * 4 + 1_000))
    made = firing(state, schedule, payload, now, min(room, fits))
    events = [_message(payload, schedule, due) for due in made.sent]
    ticked = ev.TimerTicked(
        name=name, due=made.due, next=made.next, sent=len(made.sent), skipped=made.skipped
    )
    return [*events, NewEvent.of("timer.ticked", ticked)]


def _message(payload: ev.TimerScheduled, schedule: Schedule, due: int) -> NewEvent:
    message = ev.MessageReceived(
        text=payload.text, metadata={**payload.metadata, "schedule": payload.name, "due": due}
    )
    rest: dict[str, Any] = {"id": ids.tick_id(schedule.seq, due), "actor": "schedule"}
    return NewEvent.of("message.received", message, **rest)
