"""Recurring schedules in simulations: what users do with them, and the judge of their firings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ...harness import core_of
from ...log import events as ev
from ...log.events import Event
from ...sessions.schedules import Schedules, StoredLog
from .outcome import SimulationOutcome

EVERY = 60.0  # seconds, the least interval
POLICIES: Any = (("all", "queue"), ("once", "queue"), ("once", "skip"), ("skip", "queue"))
FAR = 5_000  # ms: what is due later is not what the operator waits for


async def change(session: Any, name: str, text: str, pick: int, now: int) -> None:
    """Set a schedule whose first firing is due soon or was missed, or pause, resume or remove the
    first one. `now` is the true time."""
    known = await session.schedules.list()
    if known and pick % 5 == 0:
        await session.schedules.remove(known[0].name)
    elif known and pick % 5 == 1:
        turn = session.schedules.resume if known[0].paused else session.schedules.pause
        await turn(known[0].name)
    else:
        first = now + 1_500 - pick % 4 * int(EVERY * 1000)
        log = StoredLog(core_of(session).live.store, session.key)
        schedules = Schedules(log, clock=lambda: first - int(EVERY * 1000))
        missed, overlap = POLICIES[pick // 4 % len(POLICIES)]
        await schedules.set(name, message=text, every=EVERY, missed=missed, overlap=overlap)


async def remove_fired(harness: Any, now: int) -> None:
    """Remove the schedules that have fired or are paused, so that the simulation ends."""
    page = await harness.list(limit=100)
    for row in page.items:
        if row.due is not None and row.due > now + FAR and not row.sealed:
            session = await harness.open(row.session)
            for known in await session.schedules.list():
                if known.last is not None or known.paused:
                    await session.schedules.remove(known.name)


class _Course(Struct):
    """The course of one schedule: when it is due next, and the messages of the current append."""

    payload: ev.TimerScheduled
    coming: int
    sent: list[int]
    paused: bool = False


def fires_once(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that each due time of a schedule has at most one message, in order, and that none is
    lost that its policy keeps."""
    for key, log in outcome.whole.items():
        courses: dict[str, _Course] = {}
        for event, payload in log:
            for problem in _judged(courses, event, payload):
                yield f"{key.session}/{key.thread}: event {event.seq}: {problem}"


def _judged(courses: dict[str, _Course], event: Event, payload: Any) -> Iterator[str]:
    if isinstance(payload, ev.TimerScheduled):
        courses[payload.name] = _Course(payload, payload.next, [])
    elif isinstance(payload, ev.TimerUnscheduled):
        courses.pop(payload.name, None)
    elif isinstance(payload, ev.TimerPaused):
        known = courses[payload.name]
        known.coming = known.coming if payload.paused else payload.next or 0
        known.paused = payload.paused
    elif isinstance(payload, ev.TimerTicked):
        yield from _ticked(courses[payload.name], payload)
    elif isinstance(payload, ev.MessageReceived) and "schedule" in payload.metadata:
        name, due = payload.metadata["schedule"], payload.metadata["due"]
        course = courses.get(name)
        if (
            course is None
            or course.paused
            or due < max([course.coming, *course.sent])
            or due in course.sent
        ):
            yield f"schedule {name} fires again, or out of turn, for {due}"
        elif due > event.at + FAR * 1_000:
            yield f"schedule {name} fires {due - event.at} ms early"
        else:
            course.sent.append(due)


def _ticked(course: _Course, p: ev.TimerTicked) -> Iterator[str]:
    every = course.payload.every or 1
    times = [*range(course.coming, p.next or 0, every)]
    kept = course.payload.missed == "all"
    if not {*course.sent} <= {*times} or len(course.sent) != p.sent:
        yield f"schedule {p.name} sent {course.sent}, and says {p.sent} of {times}"
    elif len(times) != p.sent + p.skipped or (kept and p.skipped):
        yield f"schedule {p.name} loses firings: {p.sent} and {p.skipped} of {times}"
    course.coming, course.sent = p.next or 0, []
