"""When a recurring schedule is due: an interval, or a cron expression in a time zone.

Cron expressions need the package `cronsim`, which follows Debian's cron, also when clocks change.
The times of a schedule do not depend on where you start to compute them. All of it may block: use a
thread.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import InvalidValue
from ..log import events as ev
from ..stores import needing

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo  # imported when used: it reads the build settings of Python

MINUTE = 60_000  # ms: the least interval
LONGEST = 100 * 366 * 24 * 60 * MINUTE  # ms: the greatest interval
HORIZON = 5 * 366 * 24 * 60 * MINUTE  # ms: a schedule fires at least once in this time
LOOKING_BACK = (60, 1_440, 45_000, 530_000)  # minutes, each tried in turn; see `last_before`
CRON, ZONE = 200, 64  # characters
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")


class Recurrence:
    """The due times (UTC, ms) of one schedule. Raises `InvalidValue` if the schedule is not valid
    here, and `MissingExtra` if a cron expression cannot be read without its package."""

    def __init__(self, schedule: ev.TimerScheduled) -> None:
        self._first, self._every, self._cron = schedule.next, schedule.every, schedule.cron
        if self._cron is not None:
            self._zone = time_zone(schedule.timezone)
            self._simulated(0)  # raises for an expression that is not valid
        elif self._every is None or self._every < MINUTE:
            raise InvalidValue(
                field="every", problem=f"is {self._every!r} ms", remedy="set the schedule again"
            )

    def after(self, at: int) -> int | None:
        """Return the first due time after `at`, or None if there is none."""
        return next(self.times(at), None)

    def times(self, after: int) -> Iterator[int]:
        """Yield the due times after `after`, in order."""
        if self._every is not None:
            passed = max(0, (after - self._first) // self._every + 1)
            at = self._first + passed * self._every
            while True:
                yield at
                at += self._every
        for moment in self._simulated(after):
            at = int(moment.timestamp()) * 1000
            if at > after:  # a local time that exists twice, or not at all, is only one firing
                yield at
                after = at

    def last_before(self, end: int, least: int) -> int:
        """Return the last due time before `end`. `least` is an earlier one."""
        for minutes in LOOKING_BACK:
            start = max(least, end - minutes * MINUTE) - 1
            found = None
            for at in self.times(start):
                if at >= end:
                    break
                found = at
            if found is not None:
                return found
        return least

    def count(self, start: int, end: int, most: int) -> int:
        """Return how many due times there are from `start` until before `end`, at most `most`."""
        times = itertools.takewhile(lambda at: at < end, self.times(start - 1))
        return sum(1 for _ in itertools.islice(times, most))

    def _simulated(self, after: int) -> Iterator[datetime]:
        with needing("schedules", "cronsim", needed_for="cron expressions"):
            from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only where it is needed
        start = datetime.fromtimestamp(after // 1000, UTC).astimezone(self._zone)
        try:
            return CronSim(self._cron or "", start)
        except CronSimError as error:
            raise InvalidValue(
                field="cron",
                problem=f"is {self._cron!r}: {error}",
                remedy="use five fields: minute, hour, day of month, month, day of week",
            ) from error


def time_after(schedule: ev.TimerScheduled, at: int) -> int | None:
    """Return the first time after `at` at which a schedule is due, or None if there is none."""
    return Recurrence(schedule).after(at)


def first_time(cron: Any, every: Any, timezone: Any, now: int) -> tuple[int, int | None, str]:
    """Check an interval (seconds), or a cron expression and its time zone. Return the first due
    time after `now`, the interval in ms, and the name of the time zone."""
    if (cron is None) == (every is None):
        problem = "cannot be combined with every, and one of them is required"
        raise InvalidValue(field="cron", problem=problem, remedy="pass exactly one of the two")
    if every is not None:
        if timezone is not None:
            problem = "does not apply to an interval"
            raise InvalidValue(field="timezone", problem=problem, remedy="pass it with cron only")
        interval = _interval(every)
        return now + interval, interval, "UTC"
    zone = "UTC" if timezone is None else timezone
    time_zone(zone)
    if not isinstance(cron, str) or len(cron) > CRON or len(cron.split()) != 5:
        shown = cron[:CRON] if isinstance(cron, str) else cron
        raise InvalidValue(
            field="cron",
            problem=f"is {shown!r}",
            remedy="use five fields: minute, hour, day of month, month, day of week",
            limit=CRON,
        )
    draft = ev.TimerScheduled(name="", text="", next=0, cron=cron, timezone=zone)
    first = Recurrence(draft).after(now)
    if first is None or first > now + HORIZON:
        problem = f"is {cron!r}, which does not fire within 5 years"
        raise InvalidValue(field="cron", problem=problem, remedy="check day and month")
    return first, None, zone


def _interval(every: Any) -> int:
    number = isinstance(every, (int, float)) and not isinstance(every, bool)
    if not number or not MINUTE / 1000 <= every <= LONGEST / 1000:  # NaN is in no range
        raise InvalidValue(
            field="every",
            problem=f"is {every!r}",
            remedy=f"pass a number of seconds, {MINUTE // 1000} or more",
            limit=LONGEST // 1000,
        )
    return int(every * 1000)


def time_zone(name: Any) -> ZoneInfo:
    """Return the time zone with this name of the IANA database. Raises `InvalidValue`."""
    if not isinstance(name, str) or len(name) > ZONE or not _ZONE.fullmatch(name):
        shown = name[:ZONE] if isinstance(name, str) else name
        raise _unknown(shown)
    return _loaded(name)


@functools.lru_cache(maxsize=256)
def _loaded(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - not before a schedule has a time zone

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise _unknown(name) from error


def _unknown(name: Any) -> InvalidValue:
    return InvalidValue(
        field="timezone",
        problem=f"is {name!r}, which is not a known time zone",
        remedy="use a name such as 'Europe/Berlin' or 'UTC'",
        limit=ZONE,
    )
