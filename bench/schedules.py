"""What an idle worker costs beside many sessions whose schedules are due within the hour."""

from __future__ import annotations

import asyncio
import time

import holdfast
from holdfast import NewEvent, Worker
from holdfast.environment import wall_clock
from holdfast.events import SessionCreated, TimerPlanned, TimerScheduled

from .harness import PROCESS, Instant, shop
from .measure import Bar, Figure, Result, race, steady
from .settings import Settings
from .turns import url

TOGETHER = 500  # sessions that are created at once
MINUTE = 60_000
FIRST = 10 * MINUTE  # from now on: nothing is due while it is measured
WARM = 2.0  # seconds before the clock starts


def session(number: int, sessions: int, now: int) -> list[NewEvent]:
    """The log of a session with a schedule, as a driver has left it. The sessions are due one after
    the other within the hour."""
    due = now + FIRST + number * (60 * MINUTE - FIRST) // sessions
    schedule = TimerScheduled(name="check", text="Anything new?", next=due, every=60 * MINUTE)
    return [
        NewEvent.of("session.created", SessionCreated(agent=shop().key)),
        NewEvent.of("timer.scheduled", schedule),
        NewEvent.of("timer.planned", TimerPlanned(due=due)),
    ]


async def fill(place: str, sessions: int) -> None:
    now = wall_clock()
    async with holdfast.connect(place) as store:
        for start in range(0, sessions, TOGETHER):
            numbers = range(start, min(start + TOGETHER, sessions))
            logs = [(holdfast.key(f"s{n}"), session(n, sessions, now)) for n in numbers]
            await asyncio.gather(*(store.append(*log, create=True) for log in logs))


async def idle(place: str, seconds: float) -> float:
    """The share of a core that a worker takes while nothing is due, in percent."""
    async with Worker(shop(), tenants="all", store=place, default_model=Instant()):
        await asyncio.sleep(WARM)
        with steady():
            cpu, start = time.process_time(), time.perf_counter()
            await asyncio.sleep(seconds)
            return (time.process_time() - cpu) / (time.perf_counter() - start) * 100


def schedules(settings: Settings) -> Result:
    """A worker that waits for the schedules of many sessions, on SQLite."""
    sessions, seconds = settings.sizes.many, settings.sizes.idle
    result = Result(name="schedules", title=f"{sessions:,} sessions with a schedule, none due yet")
    name = "an idle worker"
    with settings.folder() as folder:
        place = url("sqlite", folder, "process")
        settings.step(f"{sessions:,} sessions")
        asyncio.run(fill(place, sessions))
        runs = {name: lambda: asyncio.run(idle(place, seconds))}
        values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    found, why = values.get(name, []), absent.get(name, "")
    unit = "% of a core"
    result.figures.append(Figure(name=f"{name}, {PROCESS}", unit=unit, values=found, absent=why))
    result.bars.append(Bar(name=name, way="most", bar=5, unit=unit, values=found, absent=why))
    return result
