"""The payloads of timers and recurring schedules.

When a schedule is due next is part of the events, so that the fold needs neither a clock nor a
library for cron expressions and time zones.
"""

from __future__ import annotations

from typing import Any, Literal

from .session_payloads import Payload


class TimerSet(Payload, frozen=True, kw_only=True):
    """A timer was set: at time `at` (ms) the text is received as a message.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str
    at: int
    text: str
    metadata: dict[str, Any] = {}


class TimerCleared(Payload, frozen=True, kw_only=True):
    """A timer was removed.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str


class TimerFired(Payload, frozen=True, kw_only=True):
    """A timer is due: its text is a message now.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str


class TimerPlanned(Payload, frozen=True, kw_only=True):
    """The time at which a driver must check the log again was set to `due`. None means that no
    check is needed before the next event.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    due: int | None = None


class TimerScheduled(Payload, frozen=True, kw_only=True):
    """A schedule was set: its text is received as a message again and again, first at `next` (ms).
    Either `cron` is its cron expression in `timezone`, or `every` its interval in ms. `missed` says
    what happens with firings that nobody made in time, `overlap` with those during a run.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    name: str
    text: str
    next: int
    cron: str | None = None
    every: int | None = None
    timezone: str = "UTC"
    metadata: dict[str, Any] = {}
    missed: Literal["skip", "once", "all"] = "once"
    overlap: Literal["skip", "queue"] = "skip"


class TimerUnscheduled(Payload, frozen=True, kw_only=True):
    """A schedule was removed.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    name: str


class TimerPaused(Payload, frozen=True, kw_only=True):
    """A schedule was paused, or resumed: then `next` is the time (ms) of its next firing.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    name: str
    paused: bool = True
    next: int | None = None


class TimerTicked(Payload, frozen=True, kw_only=True):
    """A schedule was due; `due` is the latest time (ms) that was handled, and `next` the next one,
    None if there is none. The `sent` events before this one are its messages; `skipped` times had
    none.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    name: str
    due: int
    next: int | None = None
    sent: int = 0
    skipped: int = 0
