"""Work that nobody does: the logs that have something to do and no driver, but for those that
cannot be driven here."""

from __future__ import annotations

from collections.abc import Sequence

from ...catalog import Query, is_due
from ...codec import LIMITS
from ...events import Key
from ...store import Store, wall_clock

ROOM = 100  # logs that one look takes up, at least


class Work:
    """What is left undone of some agents. A log that cannot be driven is left alone until it
    grows."""

    def __init__(self, store: Store, tenant: str, agents: Sequence[str]) -> None:
        self._store, self._tenant, self._agents = store, tenant, agents
        self._stuck: dict[Key, int] = {}
        self._cursor: str | None = None  # how far the sessions behind those were gone through

    def stuck(self, where: Key, head: int) -> None:
        """A log cannot be driven as it is."""
        self._stuck[where] = head

    def driven(self, where: Key) -> None:
        """It can."""
        self._stuck.pop(where, None)

    def vain(self, where: Key, head: int) -> bool:
        """Whether a log is as it was when it could not be driven."""
        return self._stuck.get(where) == head

    async def due(self) -> list[Key]:
        """The logs to drive now, those that have waited for longest first."""
        limit = min(LIMITS.page, ROOM + len(self._stuck))  # what is stuck must not hide the rest
        store, agents = self._store, self._agents
        due = await store.runnable(self._tenant, agents=agents, limit=limit)
        found = [where for where in due if not await self._same(where)]
        if not found and len(due) == LIMITS.page:
            return await self._behind()
        return found

    async def _same(self, where: Key) -> bool:
        if where not in self._stuck:
            return False
        row = await self._store.row(where)
        return row is not None and self.vain(where, row.head)

    async def _behind(self) -> list[Key]:
        """What more stuck logs hide than a look shows: it is looked for session by session, a page
        each time. Threads beside `main` are found when fewer are stuck."""
        query = Query(tenant=self._tenant, order="created", newest_first=False)
        page = await self._store.find(query, cursor=self._cursor, limit=LIMITS.page)
        self._cursor, now = page.cursor, wall_clock()
        return [
            row.key
            for row in page.items
            if row.agent in self._agents and is_due(row, now) and not self.vain(row.key, row.head)
        ]
