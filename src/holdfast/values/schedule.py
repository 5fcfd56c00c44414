"""A recurring schedule of a thread, as sessions, servers and the command line show it."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

Missed: TypeAlias = Literal["skip", "once", "all"]
Overlap: TypeAlias = Literal["skip", "queue"]
MISSED: tuple[Missed, ...] = ("skip", "once", "all")
OVERLAP: tuple[Overlap, ...] = ("skip", "queue")


class Scheduled(Struct, frozen=True, kw_only=True):
    """A schedule: its message, when it is sent, and what happens with late and overlapping firings.
    Either `cron` or `every` (seconds) is set. `next` is the time (UTC, ms) of the next firing, and
    `last` the latest time that was due; None if there is none.

    See [schedules](../schedules.md).
    """

    name: str
    message: str
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    missed: Missed = "once"
    overlap: Overlap = "skip"
    metadata: dict[str, Any] = {}
    paused: bool = False
    next: int | None = None
    last: int | None = None
