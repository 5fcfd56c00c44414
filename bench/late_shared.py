"""Whether a turn costs late what it costs early, on the databases: in time, rows, bytes."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any

from msgspec import Struct

import holdfast
from holdfast import Store

from . import written_shared
from .late import Written, same, turns_on, windows
from .measure import Result, steady
from .servers import Place
from .settings import Settings
from .turns import OURS, create, turns_of

MOVED = 1.5  # seconds in which every index of a log has been written to


class _Kind(Struct, frozen=True):
    """A database: what it takes to get to a late turn soon, and how its writes are counted."""

    place: Callable[[], AbstractContextManager[Place]]
    growing: dict[str, str]
    bytes_bar: float
    count: Callable[[Place, int], Coroutine[Any, Any, Written]]


def late_postgres(settings: Settings) -> Result:
    """A late window of turns beside an early one, on PostgreSQL."""
    # Each turn is an append of its own; they are not flushed, to get there soon.
    kind = _Kind(settings.servers.postgres, {"synchronous_commit": "off"}, 1.01, _count_postgres)
    return _late("postgres", kind, settings, settings.sizes.late)


def late_mongodb(settings: Settings) -> Result:
    """A late window of turns beside an early one, on MongoDB."""
    # How much of a tail an update rewrites depends on how soon what is before it was moved.
    kind = _Kind(settings.servers.mongodb, {}, 1.05, _count_mongodb)
    return _late("mongodb", kind, settings, settings.sizes.late_mongodb)


def _late(name: str, kind: _Kind, settings: Settings, late: int) -> Result:
    sizes = settings.sizes
    title = f"A turn at turn {late:,} beside one at turn {sizes.early}, on {name}"
    result = Result(name=f"late-{name}", title=title)
    result.notes.append(settings.servers.about(name))
    ours = f"{OURS} {name}"

    def early_window() -> float:
        # A fresh log each round, so that the early one stays early.
        with kind.place() as place:
            _grow(kind, place, sizes.early)
            return _median(place, sizes.window)

    with kind.place() as place:
        settings.step(f"{ours}: growing to {late:,} turns")
        _grow(kind, place, late)
        windows(
            result,
            settings,
            ours,
            early_window,
            lambda: _median(place, sizes.window),
            turns=(sizes.early, late),
            bar=1.2,
        )
        settings.step(f"{ours}: counting")
        late_writes = asyncio.run(kind.count(place, sizes.counted))
    with kind.place() as place:
        _grow(kind, place, sizes.early)
        early_writes = asyncio.run(kind.count(place, sizes.counted))
    result.notes.append(early_writes.told(f"{ours}, an append at turn {sizes.early}"))
    result.notes.append(late_writes.told(f"{ours}, an append at turn {late:,}"))
    same(result, ours, early_writes, late_writes, bytes_bar=kind.bytes_bar)
    return result


def _grow(kind: _Kind, place: Place, turns: int) -> None:
    async def main() -> None:
        async with holdfast.connect(place.with_options(**kind.growing)) as store:
            await turns_of(store, await create(store, "session"), turns)()

    asyncio.run(main())


def _median(place: Place, count: int) -> float:
    async def main() -> list[float]:
        async with holdfast.connect(place.url) as store:
            await turns_on(store, 5)
            with steady():
                return await turns_on(store, count)

    return statistics.median(asyncio.run(main()))


async def _count_postgres(place: Place, appends: int) -> Written:
    async with holdfast.connect(place.url) as store:
        await turns_on(store, 1)
        await written_shared.checkpoint(place)
        await _until_moved(store)
        start = await written_shared.wal_position(place)
        await turns_on(store, appends)
        end = await written_shared.wal_position(place)
        async with written_shared.postgres_rows(place) as rows:
            await turns_on(store, appends)
    return Written(
        {name: number / appends for name, number in rows.counts.items()},
        rows.bytes / appends,
        logged=(end - start) / appends,
        unit="bytes of the write-ahead log",
    )


async def _until_moved(store: Store) -> None:
    """Append until all pages that appends write to are logged as a whole."""
    end = time.monotonic() + MOVED
    while time.monotonic() < end:
        await turns_on(store, 1)


async def _count_mongodb(place: Place, appends: int) -> Written:
    # The store is closed first, so that what it does behind an append is done.
    async with (
        written_shared.mongodb_documents(place) as rows,
        holdfast.connect(place.url) as store,
    ):
        await turns_on(store, appends)
    return Written(
        {name: number / appends for name, number in rows.counts.items()}, rows.bytes / appends
    )
