"""When schedules are due: intervals without drift, and cron expressions where clocks change."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.events import TimerScheduled
from holdfast.sessions.recurrence import MINUTE, Recurrence, first_time

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
CRONS = (
    "* * * * *",
    "*/7 * * * *",
    "30 * * * *",
    "0 */2 * * *",
    "30 2 * * *",
    "15,45 1,2,3 * * *",
    "30 1 * * 0",
    "0 0 L * *",
    "5 0 29 2 *",
)


def ms(text: str, zone: str = "UTC", fold: int = 0) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return int(moment.timestamp() * 1000)


def local(at: int, zone: str) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).astimezone(ZoneInfo(zone)).isoformat()[:22]


def by_cron(cron: str, zone: str = "UTC") -> Recurrence:
    return Recurrence(TimerScheduled(name="s", text="t", next=0, cron=cron, timezone=zone))


def due(cron: str, zone: str, after: str, count: int) -> list[str]:
    times = by_cron(cron, zone).times(ms(after, zone))
    return [local(at, zone) for at in itertools.islice(times, count)]


@pytest.mark.parametrize(
    ("zone", "cron", "after", "expected"),
    [
        # Clocks go forward: a time that does not exist is due right after the gap, once.
        (
            BERLIN,
            "30 2 * * *",
            "2027-03-27T12:00",
            ["2027-03-28T03:00:00+02", "2027-03-29T02:30:00+02"],
        ),
        (
            BERLIN,
            "15,45 2 * * *",
            "2027-03-27T12:00",
            ["2027-03-28T03:00:00+02", "2027-03-29T02:15:00+02"],
        ),
        (
            NEW_YORK,
            "30 2 * * *",
            "2027-03-13T12:00",
            ["2027-03-14T03:00:00-04", "2027-03-15T02:30:00-04"],
        ),
        (
            LORD_HOWE,
            "15 2 * * *",
            "2026-10-03T12:00",
            ["2026-10-04T02:30:00+11", "2026-10-05T02:15:00+11"],
        ),
        # Clocks go back: a time that exists twice is due the first time only.
        (
            BERLIN,
            "30 2 * * *",
            "2026-10-24T12:00",
            ["2026-10-25T02:30:00+02", "2026-10-26T02:30:00+01"],
        ),
        (
            NEW_YORK,
            "30 1 * * *",
            "2026-10-31T12:00",
            ["2026-11-01T01:30:00-04", "2026-11-02T01:30:00-05"],
        ),
        (
            LORD_HOWE,
            "45 1 * * *",
            "2027-04-03T12:00",
            ["2027-04-04T01:45:00+11", "2027-04-05T01:45:00+10"],
        ),
        # What runs each hour or more often goes by real time: 23 or 25 hours on that day.
        (
            BERLIN,
            "0 * * * *",
            "2027-03-28T00:30",
            ["2027-03-28T01:00:00+01", "2027-03-28T03:00:00+02"],
        ),
        (
            BERLIN,
            "0 * * * *",
            "2026-10-25T01:30",
            ["2026-10-25T02:00:00+02", "2026-10-25T02:00:00+01"],
        ),
        (
            NEW_YORK,
            "*/30 1 * * *",
            "2026-11-01T00:45",
            ["2026-11-01T01:00:00-04", "2026-11-01T01:30:00-04"],
        ),
        (
            LORD_HOWE,
            "*/30 * * * *",
            "2026-10-04T01:10",
            ["2026-10-04T01:30:00+10", "2026-10-04T02:30:00+11"],
        ),
        (
            LORD_HOWE,
            "0 * * * *",
            "2027-04-04T00:30",
            ["2027-04-04T01:00:00+11", "2027-04-04T02:00:00+10"],
        ),
        # Every day at nine stays nine.
        (
            BERLIN,
            "0 9 * * *",
            "2027-03-27T12:00",
            ["2027-03-28T09:00:00+02", "2027-03-29T09:00:00+02"],
        ),
    ],
)
def test_a_schedule_follows_the_clocks_of_its_zone(
    zone: str, cron: str, after: str, expected: list[str]
) -> None:
    assert due(cron, zone, after, len(expected)) == expected


@given(
    cron=st.sampled_from(CRONS),
    zone=st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, "UTC"]),
    start=st.sampled_from(
        ["2026-10-03", "2026-10-24", "2026-10-31", "2027-03-13", "2027-03-27", "2027-04-03"]
    ),
    minutes=st.integers(0, 2 * 1_440),
    seconds=st.integers(0, 59),
)
def test_the_times_of_a_schedule_do_not_depend_on_where_you_start(
    cron: str, zone: str, start: str, minutes: int, seconds: int
) -> None:
    times, begin = by_cron(cron, zone), ms(start)
    at = begin + minutes * MINUTE + seconds * 1000
    whole = list(itertools.takewhile(lambda time: time <= at, times.times(begin)))
    assert whole == sorted(set(whole))
    later = next(time for time in times.times(begin) if time > at)
    assert times.after(at) == later
    if whole:
        assert times.last_before(at + 1, begin) == whole[-1]
        assert times.count(begin + 1, at + 1, 10_000) == len(whole)


@given(every=st.integers(MINUTE, 10 * MINUTE), first=st.integers(0, 1 << 41), n=st.integers(0, 99))
def test_an_interval_does_not_drift(every: int, first: int, n: int) -> None:
    times = Recurrence(TimerScheduled(name="s", text="t", next=first, every=every))
    at = first + n * every
    assert times.after(at - 1) == at
    assert times.after(at) == at + every
    assert times.after(at + every - 1) == at + every
    assert times.last_before(at + 1, first) == at


def test_an_interval_begins_when_it_is_set() -> None:
    assert first_time(None, 90, None, 1_000) == (91_000, 90_000, "UTC")
    assert first_time(None, 60.5, None, 0) == (60_500, 60_500, "UTC")


@pytest.mark.parametrize(
    ("field", "cron", "every", "zone"),
    [
        *(
            ("every", None, every, None)
            for every in (-60, 0, 59.99, float("nan"), float("inf"), 1e300, True, "60", [60])
        ),
        *(
            ("cron", cron, None, None)
            for cron in (
                *("", "* * * *", "* * * * * *", "*/5 * * * * *", "61 * * * *", "a b c d e"),
                *("0 0 30 2 *", "* * */20 * 1L", "0 0 30 2 MON#5", "@reboot", 7, b"* * * * *"),
                *(
                    "0 0 31 2,4 *",
                    "9" * 4_000 + " * * * *",
                    "1," * 2_000 + "1 * * * *",
                    "*\0* * * *",
                ),
            )
        ),
        *(
            ("timezone", "0 9 * * *", None, zone)
            for zone in (
                *("../etc/passwd", "/etc/passwd", "Europe/../../etc/passwd", "", "Mars/Olympus"),
                *("Europe", "Europe/Berlin\0", "x" * 100_000, 3, "europe/berlin/", ".", "a\nb"),
            )
        ),
        ("cron", None, None, None),
        ("cron", "0 9 * * *", 60, None),
        ("timezone", None, 60, "UTC"),
    ],
)
def test_what_is_no_schedule_is_refused(
    field: str, cron: object, every: object, zone: object
) -> None:
    with pytest.raises(InvalidValue) as refused:
        first_time(cron, every, zone, ms("2026-11-19"))
    assert refused.value.field == field
    assert len(str(refused.value)) < 500


def test_a_schedule_that_is_due_in_years_is_accepted() -> None:
    (first, _, _) = first_time("0 0 29 2 *", None, "UTC", ms("2026-11-19"))
    assert first == ms("2028-02-29")
    with pytest.raises(InvalidValue, match="5 years"):
        first_time("0 0 29 2 *", None, "UTC", ms("2096-03-01"))


def test_a_year_of_missed_minutes_is_skipped_quickly() -> None:
    times, now = by_cron("* * * * *", BERLIN), ms("2027-11-19")
    assert (
        times.last_before(now, now - int(timedelta(days=365) / timedelta(milliseconds=1)))
        == now - MINUTE
    )
    assert times.count(0, now, 1_000) == 1_000
