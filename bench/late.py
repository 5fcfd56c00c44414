"""Whether a turn costs at turn 20,000 what it costs at turn 200: in time, rows, bytes."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

import holdfast
from holdfast import Store

from . import peers, written
from .entries import turn
from .measure import FAILED, Absent, Bar, Figure, Result, Way, race, ratios, steady
from .settings import Settings
from .turns import OURS, create, url

Window = Callable[[int], list[float]]


def grow(scheme: str, folder: Path, turns: int) -> None:
    """A session of `turns` turns, each an append of its own; not synced, to get there soon."""

    async def main() -> None:
        async with holdfast.connect(url(scheme, folder, "process")) as store:
            key = await create(store, "session")
            for number in range(turns):
                await store.append(key, turn(number).events())

    asyncio.run(main())


async def turns_on(store: Store, count: int) -> list[float]:
    """The times of the next turns of the session."""
    key = holdfast.key("session")
    times = []
    for number in range(count):
        start = time.perf_counter()
        await store.append(key, turn(number).events())
        times.append(time.perf_counter() - start)
    return times


def ours_window(scheme: str, folder: Path) -> Window:
    """What times the next turns of the session, each durable on return."""

    async def main(count: int) -> list[float]:
        async with holdfast.connect(url(scheme, folder)) as store:
            await turns_on(store, 5)
            with steady():
                return await turns_on(store, count)

    return lambda count: asyncio.run(main(count))


class Written(Struct, frozen=True):
    """What one append of four events writes."""

    rows: dict[str, float]
    row_bytes: float
    file_bytes: float = 0.0
    logged: float = 0.0
    """What the database's own log takes, where that is counted by itself, in `unit`."""
    unit: str = "pages of the write-ahead log"

    def told(self, of: str) -> str:
        rows = ", ".join(f"{name} {count:g}" for name, count in sorted(self.rows.items()))
        files = f", {self.file_bytes:,.0f} bytes in files" if self.file_bytes else ""
        logged = f"; {self.logged:,.2f} {self.unit}" if self.logged else ""
        return f"{of}: {rows or 'no rows'}: {self.row_bytes:,.0f} bytes in rows{files}{logged}"


def count(scheme: str, folder: Path, appends: int) -> Written:
    """Rows, pages and bytes per append, over some appends to the session."""

    async def main() -> Written:
        async with holdfast.connect(url(scheme, folder, "process")) as store:
            await turns_on(store, 1)
            written.begin_wal_anew(folder)
            before = written.other_bytes(folder)
            await turns_on(store, 1)
            start = written.wal_of(folder)
            await turns_on(store, appends)
            end = written.wal_of(folder)
            if end.era != start.era:
                raise Absent("the write-ahead log began anew while it was counted")
            after = written.other_bytes(folder)
            with written.counting_rows(folder) as rows:
                await turns_on(store, appends)
            return Written(
                {name: number / appends for name, number in rows.counts.items()},
                rows.bytes / appends,
                (after - before) / (appends + 1),
                (end.pages - start.pages) / appends,
            )

    return asyncio.run(main())


def late_turn(settings: Settings) -> Result:
    """A late window of turns beside an early one, on SQLite and in files."""
    sizes = settings.sizes
    title = f"A turn at turn {sizes.late:,} beside one at turn {sizes.early}"
    result = Result(name="late-turn", title=title)
    for scheme in ("sqlite", "file"):
        _ours(result, settings, scheme)
    if settings.peers:
        _peer(
            result,
            settings,
            peers.OPENAI,
            peers.openai_windows,
            late=sizes.late,
            size=sizes.window,
        )
        _peer(
            result,
            settings,
            peers.LANGGRAPH,
            peers.langgraph_windows,
            late=sizes.late_langgraph,
            size=sizes.window_langgraph,
        )
    return result


def _ours(result: Result, settings: Settings, scheme: str) -> None:
    sizes = settings.sizes
    name = f"{OURS} {scheme}"

    def early_window() -> float:
        # A fresh log each round, so that the early one stays early.
        with settings.folder() as folder:
            grow(scheme, folder, sizes.early)
            return statistics.median(ours_window(scheme, folder)(sizes.window))

    with settings.folder() as folder:
        settings.step(f"{name}: growing to {sizes.late:,} turns")
        try:
            grow(scheme, folder, sizes.late)
        except Exception as error:
            absent = f"{FAILED}: {type(error).__name__}: {error}"
            result.figures.append(Figure(name=name, unit="ms", absent=absent))
            title = f"{name}, late ÷ early"
            result.bars.append(Bar(name=title, way="most", bar=1.2, absent=absent))
            return
        window = ours_window(scheme, folder)
        windows(
            result,
            settings,
            name,
            early_window,
            lambda: statistics.median(window(sizes.window)),
            turns=(sizes.early, sizes.late),
            bar=1.2,
        )
        settings.step(f"{name}: counting")
        late = count(scheme, folder, sizes.counted)
    with settings.folder() as folder:
        grow(scheme, folder, sizes.early)
        early = count(scheme, folder, sizes.counted)
    result.notes.append(early.told(f"{name}, an append at turn {sizes.early}"))
    result.notes.append(late.told(f"{name}, an append at turn {sizes.late:,}"))
    same(result, name, early, late)


def same(
    result: Result, name: str, early: Written, late: Written, *, bytes_bar: float = 1.01
) -> None:
    """Rows must be the same to the last one, and what they hold but for a digit more in
    numbers. A log may take a little more: a tree of more levels splits on more pages."""
    same = 1.0 if early.rows == late.rows else 0.0
    bytes = (late.row_bytes + late.file_bytes) / (early.row_bytes + early.file_bytes)
    bars: list[tuple[str, Way, float, float]] = [
        ("the same rows an append (1 is yes)", "least", 1.0, same),
        ("bytes an append, late ÷ early", "most", bytes_bar, bytes),
    ]
    if early.logged:
        title = f"{early.unit} an append, late ÷ early"
        bars.append((title, "most", 1.1, late.logged / early.logged))
    for what, way, bar, value in bars:
        result.bars.append(Bar(name=f"{name}, {what}", way=way, bar=bar, values=[value]))


def _peer(
    result: Result,
    settings: Settings,
    name: str,
    opened: Callable[[Path, int], Window],
    *,
    late: int,
    size: int,
) -> None:
    sizes = settings.sizes
    with ExitStack() as stack:
        settings.step(f"{name}: growing to {late:,} turns")
        try:
            ends = [
                opened(stack.enter_context(settings.folder()), turns)
                for turns in (sizes.early, late)
            ]
        except Absent as reason:
            result.figures.append(Figure(name=name, unit="ms", absent=str(reason)))
            return
        early_window, late_window = ends
        windows(
            result,
            settings,
            name,
            lambda: statistics.median(early_window(size)),
            lambda: statistics.median(late_window(size)),
            turns=(sizes.early, late),
        )


def windows(
    result: Result,
    settings: Settings,
    name: str,
    early: Callable[[], float],
    late: Callable[[], float],
    *,
    turns: tuple[int, int],
    bar: float | None = None,
) -> None:
    names = tuple(f"{name}, turn {number:,}" for number in turns)
    runs = dict(zip(names, (early, late), strict=True))
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for figure in names:
        times = [seconds * 1e3 for seconds in values.get(figure, [])]
        result.figures.append(
            Figure(name=figure, unit="ms", values=times, absent=absent.get(figure, ""))
        )
    grown = [] if absent else ratios(values[names[1]], values[names[0]])
    title = f"{name}, late ÷ early"
    if bar is not None:
        why = "; ".join(absent.values())
        result.bars.append(Bar(name=title, way="most", bar=bar, values=grown, absent=why))
    elif grown:
        result.figures.append(Figure(name=title, unit="×", values=grown))
