"""Recovery of runs: finds due logs that have no driver, skips logs that this process cannot drive,
and limits the number of logs that are recovered concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence

from ...environment import wall_clock
from ...log.catalog import Query, is_due
from ...log.codec import LIMITS
from ...log.events import Key
from ...stores.port import Store

SWEEP = 10_000  # logs that one sweep takes up; then the harness pauses for half a lease
FREE = 4  # search again when a quarter of the slots is free


class Slots:
    """The slots for recovered logs that are being driven. Their number is limited."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: set[Key] = set()
        self._freed = asyncio.Event()

    @property
    def free(self) -> int:
        return self._most - len(self._taken)

    def take(self, where: Key) -> None:
        self._taken.add(where)

    def give(self, *wheres: Key) -> None:
        """Free the slots of logs; logs without a slot are ignored."""
        self._taken.difference_update(wheres)
        self._freed.set()

    def __iter__(self) -> Iterator[Key]:
        return iter([*self._taken])

    async def wait_for_some(self) -> None:
        """Wait until at least a quarter of the slots is free."""
        while self.free < max(1, self._most // FREE):
            self._freed.clear()
            await self._freed.wait()


class DueLogs:
    """Finds the due logs of some agents. A log that cannot be driven is skipped until it grows. In
    one sweep, each log is recovered at most once."""

    def __init__(self, store: Store, tenant: str, agents: Sequence[str]) -> None:
        self._store, self._tenant, self._agents = store, tenant, agents
        self._stuck: dict[Key, tuple[str, int]] = {}  # incarnation and last event
        self._tried: set[Key] = set()  # in this sweep
        self._failed: set[Key] = set()  # logs that failed in this sweep, and are still due
        self._cursor: str | None = None  # the next page of sessions that `_behind` reads

    def stuck(self, where: Key, log: str, head: int) -> None:
        """Record that a log cannot be driven in its current state."""
        self._stuck[where] = (log, head)

    def driven(self, where: Key) -> None:
        """Record that a log can be driven."""
        self._stuck.pop(where, None)

    def is_stuck(self, where: Key, log: str, head: int) -> bool:
        """Return whether a log has not changed since it could not be driven."""
        return self._stuck.get(where) == (log, head)

    def begin(self) -> None:
        """Start a new sweep, in which failed logs may be tried again."""
        self._tried.clear()
        self._failed.clear()

    def failed(self, where: Key) -> None:
        """Record that a log could not be opened or driven; it is skipped until the next sweep."""
        self._tried.add(where)
        self._failed.add(where)

    async def due(self, room: int, busy: Collection[Key]) -> tuple[list[Key], bool]:
        """Return the logs to drive now, longest waiting first, and whether there may be more. At
        most `room` logs are returned, none that is `busy`, and none twice in a sweep."""
        # Ask for more logs than there is room for, since some of them are skipped.
        passed = len(self._stuck) + len(self._failed) + len(busy)
        limit = min(LIMITS.page, room + passed)
        due = await self._store.runnable(self._tenant, agents=self._agents, limit=limit)
        found = await self._new(due, busy)
        if not found and len(due) == LIMITS.page:
            found = await self._behind(room, busy)
        more = len(found) > room or (bool(found) and len(due) == limit)
        found = found[:room]
        self._tried.update(found)
        return found, more and len(self._tried) < SWEEP

    async def _new(self, due: Sequence[Key], busy: Collection[Key]) -> list[Key]:
        """Return the logs that this process does not drive and has not tried in this sweep."""
        found = []
        for where in due:
            if where in busy or where in self._tried:
                continue
            if await self._same(where):
                self._tried.add(where)
            else:
                found.append(where)
        return found

    async def _same(self, where: Key) -> bool:
        if where not in self._stuck:
            return False
        row = await self._store.row(where)
        return row is not None and self.is_stuck(where, row.log, row.head)

    async def _behind(self, room: int, busy: Collection[Key]) -> list[Key]:
        """Find due logs when stuck logs fill the whole page of runnable logs. Searches one page of
        sessions per call, and only their `main` threads. Other threads are found once fewer logs
        are stuck."""
        query = Query(tenant=self._tenant, order="created", newest_first=False)
        page = await self._store.find(query, cursor=self._cursor, limit=LIMITS.page)
        now = wall_clock()
        due = [
            row.key
            for row in page.items
            if row.agent in self._agents
            and is_due(row, now)
            and not self.is_stuck(row.key, row.log, row.head)
        ]
        found = await self._new(due, busy)
        if len(found) <= room:  # otherwise continue with the rest of this page
            self._cursor = page.cursor
        return found
