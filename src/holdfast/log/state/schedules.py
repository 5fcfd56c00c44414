"""Fold steps for recurring schedules."""

from __future__ import annotations

from msgspec.structs import replace

from .. import events as ev
from ..events import Event, ids
from .values import ENTRIES, Schedule
from .work import StateDraft, Step


def _timer_scheduled(work: StateDraft, event: Event, p: ev.TimerScheduled | None) -> None:
    work.due = event.at
    if p is not None and (p.name in work.schedules or len(work.schedules) < ENTRIES):
        work.schedules[p.name] = Schedule(event.seq, p.next)


def _timer_unscheduled(work: StateDraft, event: Event, p: ev.TimerUnscheduled | None) -> None:
    """Remove a schedule, even if the data of the event was erased: its id names the schedule."""
    work.due = event.at
    seq = ids.unscheduled_seq(event.id)
    work.schedules = {
        name: schedule
        for name, schedule in work.schedules.items()
        if schedule.seq != seq and (p is None or name != p.name)
    }


def _timer_paused(work: StateDraft, event: Event, p: ev.TimerPaused | None) -> None:
    work.due = event.at
    if p is not None and (known := work.schedules.get(p.name)) is not None:
        coming = known.next if p.paused else p.next
        work.schedules[p.name] = replace(known, paused=p.paused, next=coming)


def _timer_ticked(work: StateDraft, event: Event, p: ev.TimerTicked) -> None:
    if (known := work.schedules.get(p.name)) is not None:
        sent = event.seq - 1 if p.sent else known.sent
        work.schedules[p.name] = replace(known, next=p.next, due=p.due, sent=sent)


STEPS: dict[str, Step] = {
    "timer.scheduled": _timer_scheduled,
    "timer.unscheduled": _timer_unscheduled,
    "timer.paused": _timer_paused,
    "timer.ticked": _timer_ticked,
}

UNREADABLE = ("timer.scheduled", "timer.unscheduled", "timer.paused")
