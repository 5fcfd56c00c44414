"""What a portal costs: a call on the event loop of the store, and a hop from another."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from holdfast import NewEvent, Store, key, sync
from holdfast.portal import LoopThread
from holdfast.stores.memory import MemoryStore
from holdfast.stores.portal import PortalStore

from .measure import Bar, Figure, Result, race, steady
from .settings import Settings

KEY = key("session")
EVENTS = 1_000  # of the log that is read
Work = Callable[[Any, int], Coroutine[Any, Any, float]]


async def _grown() -> MemoryStore:
    store = MemoryStore()
    await store.append(KEY, [NewEvent.of("note.made") for _ in range(EVENTS)], create=True)
    return store


async def _rows(store: Store, count: int) -> float:
    """The time of a lookup, in µs."""
    with steady():
        start = time.perf_counter()
        for _ in range(count):
            await store.row(KEY)
        return (time.perf_counter() - start) / count * 1e6


async def _appends(store: Store, count: int) -> float:
    """The time of an append, in µs."""
    with steady():
        start = time.perf_counter()
        for _ in range(count):
            await store.append(KEY, [NewEvent.of("note.made")])
        return (time.perf_counter() - start) / count * 1e6


async def _reads(store: Store, count: int) -> float:
    """The time of an event that is read, in µs."""
    found = 0
    with steady():
        start = time.perf_counter()
        while found < count:
            async with aclosing(store.read(KEY)) as events:
                async for _ in events:
                    found += 1
        return (time.perf_counter() - start) / found * 1e6


def plain(work: Work, count: int) -> float:
    """Without a portal."""

    async def main() -> float:
        return await work(await _grown(), count)

    return asyncio.run(main())


def owner(work: Work, count: int) -> float:
    """Through a portal, on the event loop of the store."""

    async def main() -> float:
        return await work(PortalStore(await _grown()), count)

    return asyncio.run(main())


def hop(work: Work, count: int) -> float:
    """Through a portal, from another event loop."""
    portal = LoopThread("owner")
    try:
        return asyncio.run(work(PortalStore(portal.wait(_grown), portal), count))
    finally:
        portal.stop()


def thread(count: int) -> float:
    """Lookups of a thread without an event loop, in µs each."""
    portal = LoopThread("owner")
    store = sync.Store(PortalStore(portal.wait(_grown), portal))
    try:
        with steady():
            start = time.perf_counter()
            for _ in range(count):
                store.row(KEY)
            return (time.perf_counter() - start) / count * 1e6
    finally:
        portal.stop()


def switches(count: int) -> float:
    """The floor of a hop: two threads that wake each other, in µs a round trip."""
    there, back = threading.Semaphore(0), threading.Semaphore(0)

    def answer() -> None:
        for _ in range(count):
            there.acquire()
            back.release()

    other = threading.Thread(target=answer)
    other.start()
    start = time.perf_counter()
    for _ in range(count):
        there.release()
        back.acquire()
    took = time.perf_counter() - start
    other.join()
    return took / count * 1e6


def portal(settings: Settings) -> Result:
    """Calls of a store in memory: without a portal, on the owner's loop, from other loops."""
    count = settings.sizes.hops
    result = Result(name="portal", title="A store that several event loops share")
    works = {"lookup": _rows, "append": _appends, "event read": _reads}
    runs: dict[str, Callable[[], float]] = {"two threads wake each other": partial(switches, count)}
    for name, work in works.items():
        for where in (plain, owner, hop):
            runs[f"{name}, {LABELS[where]}"] = partial(where, work, count)
    runs["lookup, from a thread"] = partial(thread, count)
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for name in runs:
        found, why = values.get(name, []), absent.get(name, "")
        result.figures.append(Figure(name=name, unit="µs", values=found, absent=why))
    result.compare("append, on the owner's loop", "append, no portal", "most", 1.1)
    result.compare("event read, on the owner's loop", "event read, no portal", "most", 1.1)
    names = "lookup, from another loop", "lookup, no portal"
    why = "; ".join(absent.get(name, "") for name in names).strip("; ")
    over = [] if why else [a - b for a, b in zip(*(values[name] for name in names), strict=True)]
    what = "a hop, above the call itself"
    result.bars.append(Bar(name=what, way="most", bar=250.0, values=over, unit="µs", absent=why))
    return result


LABELS = {plain: "no portal", owner: "on the owner's loop", hop: "from another loop"}
