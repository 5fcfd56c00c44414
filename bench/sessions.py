"""What the parts of a session cost as it grows: its listeners by the text that they hear, its list
of threads by how many there are, a fork by how long its parent is."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec

from holdfast import Harness, NewEvent
from holdfast.events import Key, ThreadForked, new_id
from holdfast.harness.session.session import Session, core_of
from holdfast.models.port import Chunk, EndChunk, ModelCall, TextChunk
from holdfast.values.delta import Delta

from .harness import ASKED, USAGE, grown, host, shop
from .measure import Bar, Figure, Result, race, ratios, steady
from .settings import Settings
from .turns import url

PIECE = "words "
LISTENERS = 3
PAGE = 50
FORKS = 5  # in a round


# Text


class Pieces:
    """A model that speaks in small pieces, as fast as it can."""

    ref = "pieces/one"

    def __init__(self, count: int) -> None:
        self._count = count

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        for number in range(self._count):
            if number % 20 == 0:
                await asyncio.sleep(0)  # as one that waits for its network
            yield TextChunk(PIECE)
        yield EndChunk("stop", USAGE)


class Told:
    """What came of one answer: how long it took, and what one listener was given."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.bytes: list[float] = []


async def _hear(session: Session) -> int:
    """Listen as one who sends everything on: how many bytes of deltas there were."""
    sent = 0
    listener = session.subscribe()
    async for item in listener:
        if isinstance(item, Delta):
            sent += len(msgspec.json.encode(item))
        elif getattr(item, "kind", "") == "run.finished":
            listener.close()
            break
    return sent


async def _watch(session: Session) -> int:
    """Look as a screen does: how many characters it had to draw."""
    place: dict[str, int] = {}
    drawn = 0
    async for display in session.display.changes():
        if (message := display.message) is not None:
            drawn += len(message.body.since(place.get(message.id, 0)))
            place[message.id] = message.body.length
        if display.phase == "idle" and display.message is not None:
            break
    return drawn


def speak(deltas: int, told: Told) -> float:
    """The time of an answer in so many pieces, with those who listen and one who watches, in s."""

    async def main() -> float:
        async with Harness(shop(), default_model=Pieces(deltas)) as harness:
            session = await harness.get_or_create("session")
            tasks = [asyncio.create_task(_hear(session)) for _ in range(LISTENERS)]
            tasks.append(asyncio.create_task(_watch(session)))
            await asyncio.sleep(0)
            with steady():
                start = time.perf_counter()
                result = await session.send(ASKED)
                *heard, drawn = await asyncio.gather(*tasks)
                took = time.perf_counter() - start
        if len(result.text) != deltas * len(PIECE) or drawn != len(result.text):
            raise RuntimeError(f"{drawn} of {len(result.text)} characters were drawn")
        told.seconds.append(took)
        told.bytes.append(max(heard) / len(result.text))
        return took

    return asyncio.run(main())


def session_deltas(settings: Settings) -> Result:
    """Many small pieces of text: whether they cost the listeners what the text costs."""
    few, many = settings.sizes.deltas // 4, settings.sizes.deltas
    result = Result(name="session-deltas", title=f"An answer in {many:,} pieces, {few:,} beside")
    told = {few: Told(), many: Told()}
    names = {f"{count:,} pieces": count for count in told}

    def run(count: int) -> Callable[[], float]:
        return lambda: speak(count, told[count]) / count * 1e6

    runs = {name: run(count) for name, count in names.items()}
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    why = "; ".join(absent.values())
    grew = [] if why else ratios(*(values[name] for name in reversed(names)))
    what = f"a piece of {many:,} ÷ a piece of {few:,}"
    result.bars.append(Bar(name=what, way="most", bar=1.5, values=grew, absent=why))
    bytes = [] if why else ratios(told[many].bytes[1:], told[few].bytes[1:])
    what = "bytes told to a listener a character, many ÷ few"
    result.bars.append(Bar(name=what, way="most", bar=1.1, values=bytes, absent=why))
    for name, count in names.items():
        note = f"{LISTENERS} who listen, and one who watches the display"
        found = values.get(name, [])
        result.figures.append(
            Figure(name=name, unit="µs a piece", values=found, note=note, absent=why)
        )
        result.figures.append(
            Figure(
                name=f"{name}, bytes told a character",
                unit="×",
                values=told[count].bytes[1:],
                absent=why,
            )
        )
    return result


# Threads


async def _threads(folder: Path, count: int) -> None:
    """A session of so many threads, each with a word in it."""
    async with host(url("sqlite", folder, "process")) as harness:
        session = await harness.get_or_create("session")
        for number in range(count - 1):
            other = await session.thread.create(f"Thread {number}", id=f"thread-{number}")
            await other.post(ASKED)
        for number in range(count - 1):
            live = await session.thread.switch(f"thread-{number}")
            await live.wait()


def listed(folder: Path, limit: int, queries: int) -> float:
    """The median time of the first page of threads, in ms."""

    async def main() -> float:
        async with host(url("sqlite", folder)) as harness:
            session = await harness.get_or_create("session")
            times = []
            with steady():
                for _ in range(queries):
                    start = time.perf_counter()
                    page = await session.thread.list(limit=limit)
                    times.append(time.perf_counter() - start)
                    if len(page.items) != limit:
                        raise RuntimeError(f"{len(page.items)} threads of {limit}")
            return statistics.median(times) * 1e3

    return asyncio.run(main())


def session_threads(settings: Settings) -> Result:
    """A page of a session's threads: whether it matters how many there are beside."""
    many, queries = settings.sizes.threads, settings.sizes.queries
    pages = sorted({min(10, many), min(PAGE, many)})
    result = Result(name="session-threads", title=f"List the threads of a session with {many:,}")
    with settings.folder() as full:
        settings.step(f"making {many:,} threads")
        asyncio.run(_threads(full, many))
        for limit in pages:
            with settings.folder() as small:
                asyncio.run(_threads(small, limit))
                few, more = f"{limit} of {limit}", f"{limit} of {many:,}"
                runs: dict[str, Callable[[], float]] = {
                    few: lambda small=small, limit=limit: listed(small, limit, queries),  # type: ignore[misc]
                    more: lambda limit=limit: listed(full, limit, queries),  # type: ignore[misc]
                }
                values, absent = race(runs, rounds=settings.rounds, step=settings.step)
            for name in runs:
                found, why = values.get(name, []), absent.get(name, "")
                result.figures.append(Figure(name=name, unit="ms", values=found, absent=why))
            result.compare(more, few, "most", 1.5)
    return result


# Forks


def forked(folder: Path, *, opened: bool) -> float:
    """The median time of a fork at the head of the session, in ms; `opened`: and of opening it."""

    async def main() -> float:
        async with host(url("sqlite", folder, "process")) as harness:
            session = await harness.get_or_create("session")
            times = []
            with steady():
                for _ in range(FORKS):
                    start = time.perf_counter()
                    if opened:
                        await session.thread.clone("A fork")
                    else:
                        await _fork(harness, session)
                    times.append(time.perf_counter() - start)
            return statistics.median(times) * 1e3

    return asyncio.run(main())


async def _fork(harness: Harness, session: Session) -> Key:
    """What the store does for a fork."""
    key, at = session.key, core_of(session).live.state.head
    first = NewEvent.of("thread.forked", ThreadForked(parent="main", at=at, agent="shop"))
    await harness.store.fork(key, thread := new_id(), at=at, first=first)
    return Key(key.tenant, key.session, thread)


def session_fork(settings: Settings) -> Result:
    """A fork at the head of a thread: whether it matters how long that is."""
    few, window, many = 20, 150, settings.sizes.forked
    result = Result(name="session-fork", title=f"Fork a thread after {many:,} turns")
    with settings.folder() as short, settings.folder() as middle, settings.folder() as long:
        places = {few: short, window: middle, many: long}
        for turns, folder in places.items():
            settings.step(f"growing to {turns:,} turns")
            grown(folder, turns)
        runs: dict[str, Callable[[], float]] = {}
        for turns, folder in places.items():
            runs[_named(turns)] = lambda folder=folder: forked(folder, opened=False)  # type: ignore[misc]
        for turns, folder in places.items():
            name = f"{_named(turns)} and open it"
            runs[name] = lambda folder=folder: forked(folder, opened=True)  # type: ignore[misc]
        values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for name in runs:
        found, why = values.get(name, []), absent.get(name, "")
        result.figures.append(Figure(name=name, unit="ms", values=found, absent=why))
    result.compare(_named(many), _named(few), "most", 1.5)
    result.compare(f"{_named(many)} and open it", f"{_named(window)} and open it", "most", 1.5)
    return result


def _named(turns: int) -> str:
    return f"fork after {turns:,} turns"
