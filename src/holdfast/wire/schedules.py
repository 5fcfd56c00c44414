"""Requests and responses about recurring schedules."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..values.schedule import Missed, Overlap, Scheduled
from .requests import Name, Request


class SetSchedule(Request, frozen=True, kw_only=True):
    """A message to send again and again: at the times of a `cron` expression by the clocks of
    `timezone`, or `every` so many seconds. `missed` and `overlap` say what happens with late
    firings, and with those while a run is open."""

    message: str
    cron: Name | None = None
    every: float | None = None
    timezone: Name | None = None
    missed: Missed = "once"
    overlap: Overlap = "skip"
    metadata: dict[Name, Any] = {}


class SchedulesShown(Struct, frozen=True, kw_only=True):
    """The schedules of a thread."""

    items: list[Scheduled]


class ScheduleRemoved(Struct, frozen=True, kw_only=True):
    """Whether there was a schedule to remove."""

    removed: bool
