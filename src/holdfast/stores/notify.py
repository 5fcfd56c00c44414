"""The followers of logs, how they are woken, and the loop that implements `Store.follow`.

Events that this process appends are passed to its followers directly. When another process appends
events, the followers are woken and read the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from ..log.events import Event, Key
from ..values.stream_items import CaughtUp
from .port import Store
from .rules import Extension, found

MOST_EVENTS, MOST_BYTES = 256, 1 << 20  # maximum queue of a follower; beyond it, it reads the store


class Follower:
    """A follower that waits for events after number `after` of one incarnation of a log."""

    def __init__(self, log: str, after: int) -> None:
        self.log, self.after = log, after
        self._told: list[Event] = []
        self._bytes = 0
        self._look = True
        self._woken = asyncio.Event()

    def tell(self, log: str, events: Sequence[Event]) -> None:
        """Pass newly appended events to the follower, in order."""
        self._told += events
        self._bytes += sum([len(event.data) for event in events])
        much = len(self._told) > MOST_EVENTS or self._bytes > MOST_BYTES
        if much or log != self.log:
            self.wake()
        self._woken.set()

    def wake(self, head: int | None = None) -> None:
        """Wake the follower. If `head` is given, events up to this number were appended and nothing
        else changed."""
        if head is None or head > (self._told[-1].seq if self._told else self.after):
            self._told, self._bytes, self._look = [], 0, True
            self._woken.set()

    async def woken(self) -> list[Event] | None:
        """Wait for the next wake-up. Returns the events that directly follow event `after`, or None
        if the follower must read the store."""
        if not self._look:
            await self._woken.wait()
        # Cleared before the store is read: an append meanwhile sets it again.
        self._woken.clear()
        told, self._told, self._bytes = self._told, [], 0
        new = [event for event in told if event.seq > self.after]
        # Numbers are dense: if one is missing, another process appended in between.
        gap = any(event.seq != n for n, event in enumerate(new, self.after + 1))
        look, self._look = self._look or gap, False
        return None if look else new


class Wakes:
    """The followers of one store that wait for events. All of them run on the same event loop."""

    def __init__(self) -> None:
        self._waiting: dict[Key, dict[Follower, None]] = {}  # in the order in which they were added

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def followed(self) -> list[Key]:
        """Return the logs that have followers."""
        return list(self._waiting)

    def add(self, key: Key, follower: Follower) -> None:
        self._waiting.setdefault(key, {})[follower] = None

    def remove(self, key: Key, follower: Follower) -> None:
        waiting = self._waiting.get(key, {})
        waiting.pop(follower, None)
        if not waiting:
            self._waiting.pop(key, None)

    def tell(self, key: Key, done: Extension | None) -> None:
        """Notify followers that this process appended to a log. `done` contains the new events, or
        is None if they are not known."""
        for follower in self._waiting.get(key, ()):
            if done is None or not done.fresh:
                follower.wake()
            else:
                follower.tell(done.row.log, done.fresh)

    def wake(self, key: Key, head: int | None = None) -> None:
        """Notify followers that a log changed. `head` is the new last event if events were
        appended; None for any other change."""
        for follower in self._waiting.get(key, ()):
            follower.wake(head)

    def wake_all(self) -> None:
        """Wake every follower, because an unknown log changed or the store was closed."""
        for waiting in self._waiting.values():
            for follower in waiting:
                follower.wake()


async def follow(
    store: Store,
    wakes: Wakes,
    key: Key,
    after: int,
    log: str | None,
    begun: Callable[[], None] = lambda: None,
) -> AsyncGenerator[Event | CaughtUp, None]:
    """Implement `Store.follow`: yield the existing events, then `CaughtUp`, then the new events at
    each wake-up. `begun` is called before the first wait."""
    row = found(key, await store.row(key), log)
    follower = Follower(row.log, after)
    caught_up = False
    wakes.add(key, follower)
    begun()
    try:
        while True:
            told = await follower.woken()
            if told is None:
                async for event in store.read(key, after=follower.after, log=row.log):
                    follower.after = event.seq
                    yield event
            else:
                for event in told:
                    follower.after = event.seq
                    yield event
            if not caught_up:
                caught_up = True
                yield CaughtUp(row.log, follower.after)
    finally:
        wakes.remove(key, follower)
