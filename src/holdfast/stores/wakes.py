"""Waking followers: who waits for which log, and the loop that `follow` is on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from ..events import Event, Key
from ..store import CaughtUp, Store
from .rules import found


class Wakes:
    """The waiting followers of one store, all on one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[Key, set[asyncio.Event]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def followed(self) -> list[Key]:
        """The logs that someone follows."""
        return list(self._waiting)

    def add(self, key: Key) -> asyncio.Event:
        woken = asyncio.Event()
        self._waiting.setdefault(key, set()).add(woken)
        return woken

    def remove(self, key: Key, woken: asyncio.Event) -> None:
        waiting = self._waiting.get(key, set())
        waiting.discard(woken)
        if not waiting:
            self._waiting.pop(key, None)

    def wake(self, key: Key) -> None:
        for woken in self._waiting.get(key, ()):
            woken.set()

    def wake_all(self) -> None:
        for waiting in self._waiting.values():
            for woken in waiting:
                woken.set()


async def follow(
    store: Store, wakes: Wakes, key: Key, after: int, log: str | None
) -> AsyncGenerator[Event | CaughtUp, None]:
    """Read to the end, say so, then read again after each wake."""
    row = found(key, await store.row(key), log)
    caught_up = False
    woken = wakes.add(key)
    try:
        while True:
            # Cleared before the read: what is appended during it wakes us again.
            woken.clear()
            async for event in store.read(key, after=after, log=row.log):
                after = event.seq
                yield event
            if not caught_up:
                caught_up = True
                yield CaughtUp(row.log, after)
            await woken.wait()
    finally:
        wakes.remove(key, woken)
