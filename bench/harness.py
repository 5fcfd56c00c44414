"""What the harness costs beside the model: a turn of a model that answers at once, early and
late in a session, how long a long session takes to open, and how long it takes to answer all that
was left undone."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from holdfast import Agent, Harness, NewEvent, connect, key, tool
from holdfast import events as ev
from holdfast.harness.host import sessions_of
from holdfast.harness.session.session import Session
from holdfast.models.port import CallChunk, Chunk, EndChunk, FromTools, ModelCall, TextChunk

from . import runners
from .before import BEFORE, before
from .measure import Bar, Figure, Result, race, steady
from .settings import Settings
from .turns import url

ASKED = "Where is order 42? It was to come on Monday."
ANSWER = "It left our house this morning and should be with you tomorrow before noon."
USAGE = {"input_tokens": 60, "output_tokens": 16}
WARM = 5  # turns before the clock starts

MEMORY = "Holdfast memory"
PROCESS = "Holdfast sqlite, durability=process"
MACHINE = "Holdfast sqlite"


class Instant:
    """A model that answers at once; `calls` tools first, all in one message. `asked` counts how
    often it was called."""

    ref = "instant/one"

    def __init__(self, calls: int = 0) -> None:
        self._calls, self.asked = calls, 0

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.asked += 1
        if self._calls and not isinstance(call.messages[-1], FromTools):
            for number in range(self._calls):
                yield CallChunk("find_order", {"order": number})
            yield EndChunk("calls", USAGE)
        else:
            yield TextChunk(ANSWER)
            yield EndChunk("stop", USAGE)


@tool
async def find_order(order: int) -> str:
    """Where an order is."""
    return f"Order {order} left this morning."


def shop(calls: int = 0) -> Agent:
    """The agent of all these workloads."""
    return Agent("shop", "You answer questions about orders.", tools=[find_order] if calls else [])


def host(storage: str, calls: int = 0) -> Harness:
    """A harness with a model that answers at once."""
    return Harness(shop(calls), default_model=Instant(calls), store=storage)


async def turns_of(session: Session, count: int) -> list[float]:
    """The times of the next turns, each from the question to the result."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        result = await session.send(ASKED)
        times.append(time.perf_counter() - start)
        if result.status != "done":
            raise RuntimeError(f"a turn ended as {result.status}: {result.code}")
    return times


def a_turn(storage: str, turns: int, calls: int = 0) -> float:
    """The median turn of a new session, in ms."""

    async def main() -> float:
        async with host(storage, calls) as harness:
            session = await harness.get_or_create("session")
            await turns_of(session, WARM)
            with steady():
                return statistics.median(await turns_of(session, turns)) * 1e3

    return asyncio.run(main())


def harness_turn(settings: Settings) -> Result:
    """A turn of a model that answers at once: in memory, on SQLite, with tools."""
    result = Result(name="harness-turn", title="A turn with an instant model")
    turns = settings.sizes.turns_harness

    def on(scheme: str, durability: str = "machine", calls: int = 0) -> Callable[[], float]:
        def run() -> float:
            with settings.folder() as folder:
                return a_turn(url(scheme, folder, durability), turns, calls)

        return run

    def earlier(scheme: str, calls: int = 0) -> Callable[[], float]:
        def run() -> float:
            with settings.folder() as folder:
                assert settings.before is not None
                return before(settings.before, "harness-turn", url(scheme, folder), turns, calls)

        return run

    def peer() -> float:
        with settings.folder() as folder:
            return runners.openai_turn(folder, turns, ASKED, ANSWER)

    runs = {
        MEMORY: on("memory"),
        f"{MEMORY}, a tool": on("memory", calls=1),
        f"{MEMORY}, five tools at once": on("memory", calls=5),
        PROCESS: on("sqlite", "process"),
        MACHINE: on("sqlite"),
        f"{MACHINE}, a tool": on("sqlite", calls=1),
    }
    if settings.before:
        runs[f"{BEFORE}, memory"] = earlier("memory")
        runs[f"{BEFORE}, sqlite"] = earlier("sqlite")
        runs[f"{BEFORE}, sqlite, a tool"] = earlier("sqlite", calls=1)
    if settings.peers:
        runs[runners.OPENAI] = peer
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for name in runs:
        result.figures.append(
            Figure(
                name=name,
                unit="ms",
                values=values.get(name, []),
                absent=absent.get(name, ""),
                note=f"the median of {turns} turns",
            )
        )
    result.bars.append(most(MEMORY, 1.0, "ms", values, absent))
    if settings.peers:
        result.compare(runners.OPENAI, MACHINE, "least", 3.0)
    if settings.before:
        result.compare(f"{BEFORE}, memory", MEMORY, "least", 1.0)
        result.compare(f"{BEFORE}, sqlite", MACHINE, "least", 1.5)
        result.compare(f"{BEFORE}, sqlite, a tool", f"{MACHINE}, a tool", "least", 1.5)
    return result


def most(
    name: str, bar: float, unit: str, values: dict[str, list[float]], absent: dict[str, str]
) -> Bar:
    """The bar that a contestant of a race must stay below."""
    found, why = values.get(name, []), absent.get(name, "")
    return Bar(name=name, way="most", bar=bar, unit=unit, values=found, absent=why)


class Long:
    """The windows of one long session, round by round, as medians in ms."""

    def __init__(self, turns: int, window: int) -> None:
        self.turns, self.window = turns, window
        self.first: list[float] = []
        self.early: list[float] = []
        self.late: list[float] = []

    def go(self) -> float:
        async def main() -> list[float]:
            async with host("memory:") as harness:
                session = await harness.get_or_create("session")
                with steady():
                    return await turns_of(session, self.turns)

        times = asyncio.run(main())
        for kept, end in (
            (self.first, self.window),
            (self.early, 2 * self.window),
            (self.late, self.turns),
        ):
            kept.append(statistics.median(times[end - self.window : end]) * 1e3)
        return self.late[-1] / self.early[-1]


def grown(folder: Path, turns: int) -> None:
    """A session of so many turns, on SQLite."""

    async def main() -> None:
        async with host(url("sqlite", folder, "process")) as harness:
            await turns_of(await harness.get_or_create("session"), turns)

    asyncio.run(main())


def opened(folder: Path) -> float:
    """How long a session takes to open in a new harness, in ms."""

    async def main() -> float:
        async with host(url("sqlite", folder)) as harness:
            with steady():
                start = time.perf_counter()
                await harness.get_or_create("session")
                return (time.perf_counter() - start) * 1e3

    return asyncio.run(main())


def harness_late(settings: Settings) -> Result:
    """Whether a turn costs late in a session what it costs early, and opening a long one."""
    window, turns = settings.sizes.window_harness, settings.sizes.late_harness
    result = Result(name="harness-late", title=f"A turn up to turn {turns:,}")
    long, grew = Long(turns, window), "late ÷ early"
    with settings.folder() as few, settings.folder() as many:
        settings.step("growing")
        grown(few, window)
        grown(many, turns)
        runs: dict[str, Callable[[], float]] = {
            grew: long.go,
            f"open after {window:,} turns": lambda: opened(few),
            f"open after {turns:,} turns": lambda: opened(many),
        }
        values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    result.bars.append(most(grew, 1.2, "×", values, absent))
    for kept, end in ((long.first, window), (long.early, 2 * window), (long.late, turns)):
        name = f"{MEMORY}, turns {end - window + 1:,} to {end:,}"
        why = absent.get(grew, "")
        result.figures.append(Figure(name=name, unit="ms", values=kept[1:], absent=why))
    for name in list(runs)[1:]:
        found, why = values.get(name, []), absent.get(name, "")
        result.figures.append(Figure(name=name, unit="ms", values=found, absent=why))
    return result


async def leave(storage: str, sessions: int) -> None:
    """Sessions with a message that nobody has answered."""
    created = ev.SessionCreated(agent=shop().key)
    async with connect(storage) as store:
        for number in range(sessions):
            events = [
                NewEvent.of("session.created", created),
                NewEvent.of("message.received", ev.MessageReceived(text=ASKED)),
            ]
            await store.append(key(f"left-{number}"), events, create=True)


def recovered(storage: str, sessions: int) -> float:
    """How many sessions that nobody drove a new process answers, per second."""

    async def main() -> float:
        await leave(storage, sessions)
        model = Instant()
        with steady():
            start = time.perf_counter()
            async with Harness(shop(), default_model=model, store=storage) as harness:
                while model.asked < sessions or list(sessions_of(harness).logs):  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
                return sessions / (time.perf_counter() - start)

    return asyncio.run(main())


def harness_recovery(settings: Settings) -> Result:
    """Sessions that were left undone, answered by a process that starts."""
    left = settings.sizes.left
    result = Result(name="harness-recovery", title=f"{left:,} sessions without a driver")

    def on(scheme: str, durability: str) -> Callable[[], float]:
        def run() -> float:
            with settings.folder() as folder:
                return recovered(url(scheme, folder, durability), left)

        return run

    runs = {PROCESS: on("sqlite", "process"), MACHINE: on("sqlite", "machine")}
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for name in runs:
        found, why = values.get(name, []), absent.get(name, "")
        result.figures.append(Figure(name=name, unit="/s", values=found, absent=why))
    found, why = values.get(MACHINE, []), absent.get(MACHINE, "")
    result.bars.append(Bar(name=MACHINE, way="least", bar=50, unit="/s", values=found, absent=why))
    return result
