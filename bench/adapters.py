"""Our adapters of agent SDKs beside the SDKs' own stores on SQLite: turns, fleets, late turns,
bytes, loading."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from msgspec import Struct

from . import adapter_sessions as sessions
from . import peers
from .adapter_sessions import Open, WriteTurn
from .measure import Bar, Figure, Result, race, steady
from .settings import Settings
from .written import databases


class Pair(Struct, frozen=True):
    """An adapter of ours, the SDK's own store, and the bars."""

    name: str
    ours: str
    theirs: str
    open_ours: Open
    open_theirs: Open
    one: float  # times their turns per second, at least
    storage: float  # times their bytes, at most
    turns: str = "turns_adapter"  # of one session, a round
    turns_together: str = ""  # of each session of a fleet; by default, the same turns in all
    merging: Callable[[int], float] | None = None  # µs of the SDK's own work for a late turn


OPENAI = Pair(
    "adapter-openai",
    "Holdfast session",
    peers.OPENAI,
    sessions.openai_ours,
    sessions.openai_theirs,
    one=0.9,
    storage=1.3,
)
LANGGRAPH = Pair(
    "adapter-langgraph",
    "Holdfast saver",
    peers.LANGGRAPH,
    sessions.langgraph_ours,
    sessions.langgraph_theirs,
    one=3.0,
    storage=0.05,
    turns_together="turns_adapter_together",
    merging=sessions.langgraph_merging,
)
ADK = Pair(
    "adapter-adk",
    "Holdfast session service",
    peers.ADK_SQLITE,
    sessions.adk_ours,
    sessions.adk_theirs,
    one=3.0,
    storage=1.5,
    turns="turns_adk",
)

FLEET = 3.0  # times their turns per second, at least
EARLY = 100  # turns of the short conversation
LATE = 1.2  # times an early turn, at most
LOADING = 1.3  # times their loading, at most


def adapter_openai(settings: Settings) -> Result:
    """The OpenAI Agents SDK's session, beside its SQLiteSession."""
    return _compared(OPENAI, settings)


def adapter_langgraph(settings: Settings) -> Result:
    """LangGraph's checkpointer, beside its AsyncSqliteSaver."""
    return _compared(LANGGRAPH, settings)


def adapter_adk(settings: Settings) -> Result:
    """Google ADK's session service, beside its SqliteSessionService."""
    return _compared(ADK, settings)


def _compared(pair: Pair, settings: Settings) -> Result:
    sizes = settings.sizes
    result = Result(name=pair.name, title=f"{pair.ours} and {pair.theirs}, on SQLite")
    turns: int = getattr(sizes, pair.turns)
    fleet = max(1, turns // sizes.together)
    if pair.turns_together:
        fleet = getattr(sizes, pair.turns_together)
    with settings.folder() as long, settings.folder() as kept, settings.folder() as other:
        runs = {
            pair.ours: _speed(settings, pair.open_ours, 1, turns),
            f"{pair.ours}, {sizes.together}": _speed(
                settings, pair.open_ours, sizes.together, fleet
            ),
            f"{pair.ours}, late": lambda: _late(pair.open_ours, long, settings),
            f"{pair.ours}, load": _loading(pair.open_ours, kept, turns),
        }
        if pair.merging is not None:
            runs[f"{pair.name.removeprefix('adapter-')} itself, merging"] = partial(
                pair.merging, sizes.late_adapter
            )
        if settings.peers:
            runs |= {
                pair.theirs: _speed(settings, pair.open_theirs, 1, turns),
                f"{pair.theirs}, {sizes.together}": _speed(
                    settings, pair.open_theirs, sizes.together, fleet
                ),
                f"{pair.theirs}, load": _loading(pair.open_theirs, other, turns),
            }
        values, absent = race(runs, rounds=settings.rounds, step=settings.step)
        stored = {pair.ours: kept, pair.theirs: other}
        for name, folder in stored.items():
            if f"{name}, load" in values:
                size = _size(folder) / turns / 1e3
                values[f"{name}, storage"] = [size]
            else:
                absent[f"{name}, storage"] = absent.get(f"{name}, load", "")
    units = {"load": "µs/turn", "storage": "KB/turn", "late": "×", "merging": "µs/turn"}
    late = f"turn {sizes.late_adapter:,}"
    notes = {
        "late": f"{late} beside turn {EARLY}",
        "merging": f"{late}: the SDK's own work, without a store",
        f"{sizes.together}": f"{fleet} turns of each session",
    }
    for name in [*runs, *(f"{name}, storage" for name in stored)]:
        last = name.rpartition(", ")[2]
        unit, note = units.get(last, "turns/s"), notes.get(last, f"{turns} turns")
        found, why = values.get(name, []), absent.get(name, "")
        if found or why:
            result.figures.append(Figure(name=name, unit=unit, values=found, note=note, absent=why))
    _judge(result, pair, settings)
    return result


def _judge(result: Result, pair: Pair, settings: Settings) -> None:
    late = result.figure(f"{pair.ours}, late")
    result.bars.append(
        Bar(name=late.name, way="most", bar=LATE, values=late.values, absent=late.absent)
    )
    if not settings.peers:
        return
    together = settings.sizes.together
    result.compare(pair.ours, pair.theirs, "least", pair.one)
    result.compare(f"{pair.ours}, {together}", f"{pair.theirs}, {together}", "least", FLEET)
    result.compare(f"{pair.ours}, load", f"{pair.theirs}, load", "most", LOADING)
    result.compare(f"{pair.ours}, storage", f"{pair.theirs}, storage", "most", pair.storage)


def _speed(settings: Settings, open: Open, count: int, turns: int) -> Callable[[], float]:
    """Return what measures turns per second, of `count` conversations at once."""

    async def main(folder: Path) -> float:
        async with open(folder) as conversations:
            writes = [await conversations.begin(f"session-{n}") for n in range(count)]
            for write in writes:
                await write(0)
            seconds = await peers.gathered([lambda w=write: _turns(w, turns) for write in writes])  # type: ignore[misc]
            return count * turns / seconds

    def run() -> float:
        with settings.folder() as folder:
            return asyncio.run(main(folder))

    return run


async def _turns(write: WriteTurn, turns: int) -> None:
    for number in range(turns):
        await write(number)


def _late(open: Open, folder: Path, settings: Settings) -> float:
    """Return how many times an early turn a late one takes, by the medians of turns of a short and
    of a long conversation that alternate."""
    sizes = settings.sizes

    async def main() -> float:
        async with open(folder) as conversations:
            name = f"session-{time.monotonic_ns()}"
            lengths = {"short": min(EARLY, sizes.late_adapter), "long": sizes.late_adapter}
            writes = {which: await conversations.begin(f"{name}-{which}") for which in lengths}
            for which, length in lengths.items():
                await _turns(writes[which], length)
            times: dict[str, list[float]] = {which: [] for which in lengths}
            with steady():
                for number in range(sizes.window_adapter):
                    for which, write in writes.items():
                        start = time.perf_counter()
                        await write(number)
                        times[which].append(time.perf_counter() - start)
            return statistics.median(times["long"]) / statistics.median(times["short"])

    return asyncio.run(main())


def _loading(open: Open, folder: Path, turns: int) -> Callable[[], float]:
    """Return what measures the loading of a conversation by a store that was just opened, in µs a
    turn. The first call makes the conversation."""

    async def make() -> None:
        async with open(folder) as conversations:
            await _turns(await conversations.begin("session"), turns)

    async def load() -> float:
        async with open(folder) as conversations:
            with steady():
                start = time.perf_counter()
                entries = await conversations.load("session")
                seconds = time.perf_counter() - start
        if entries != 4 * turns:
            raise RuntimeError(f"{entries} entries instead of {4 * turns}")
        return seconds / turns * 1e6

    def run() -> float:
        if not databases(folder):
            asyncio.run(make())
        return asyncio.run(load())

    return run


def _size(folder: Path) -> int:
    """Return the bytes of the databases in a folder, without their write-ahead logs."""
    for path in databases(folder):
        with closing(sqlite3.connect(path)) as conn:
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return sum(path.stat().st_size for path in databases(folder))
