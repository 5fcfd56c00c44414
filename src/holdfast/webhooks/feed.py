"""Finds the logs of a tenant that may have news for an endpoint, without looking at each.

The sessions with recent activity come from the index on their activity. It does not show every
change: labels, metadata and phases are no activity, and a thread has its own. So recently changed
threads are looked at again for some minutes, and a review goes through all sessions, a few at a
time, at a cost that does not depend on their number.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence

from ..log.catalog import Query, Row
from ..log.events import Key
from ..stores.pages import every_row
from ..stores.port import Store
from .records import INBOX

OVERLAP = 10  # seconds that a search looks back, for clocks that differ and late commits
RECENT = 3_600  # seconds that the activity of another thread may be older than the session's
PAGE = 200  # sessions that are read at a time
THREADS = 100  # threads of a session that are looked at
KNOWN = 10_000  # logs whose last event is remembered
HOT, HOT_SECONDS = 200, 600.0  # threads that are looked at again, and for how long
REVIEW_SECONDS, REVIEWED = 5.0, 50  # the review reads so many sessions, so often


class Changed:
    """A log that may have news: its row, and the row of its session's main thread."""

    __slots__ = ("main", "row")

    def __init__(self, row: Row, main: Row) -> None:
        self.row, self.main = row, main


class Feed:
    """The logs of one tenant that changed since they were last delivered."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store, self._tenant = store, tenant
        self._known: OrderedDict[str, int] = OrderedDict()  # the head of each log, by incarnation
        self._hot: OrderedDict[Key, float] = OrderedDict()  # until when
        self._review: str | None = None
        self._reviewed = -REVIEW_SECONDS

    def done(self, row: Row) -> None:
        """Record that a log has nothing to deliver up to its last event, or is marked as due."""
        self._known[row.log] = row.head
        self._known.move_to_end(row.log)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def is_new(self, row: Row) -> bool:
        """Return whether a log has events that were not looked at."""
        return self._known.get(row.log) != row.head

    async def active(
        self, since: int, first: int
    ) -> AsyncGenerator[tuple[list[Changed], int], None]:
        """Yield the changed logs of sessions with activity from the second `since` on, page by
        page, with the latest activity of each page. Logs without an event since `first` (ms) are
        left out."""
        query = Query(tenant=self._tenant, active_from=max(0, since - OVERLAP), newest_first=False)
        cursor: str | None = None
        while True:
            page = await self._store.find(query, cursor=cursor, limit=PAGE)
            changed: list[Changed] = []
            for main in page.items:
                if self._is_ours(main) and self.is_new(main):
                    changed += await self._threads(main, max(0, since - RECENT), first)
            for one in changed:
                self._watch(one.row.key)
            yield changed, page.items[-1].active if page.items else since
            if (cursor := page.cursor) is None:
                return

    async def everything(self, since: int) -> AsyncGenerator[list[Row], None]:
        """Yield the logs of all sessions that have events since a time (ms), page by page."""
        query = Query(tenant=self._tenant, order="created", newest_first=False)
        cursor: str | None = None
        while True:
            page = await self._store.find(query, cursor=cursor, limit=PAGE)
            found: list[Row] = []
            for main in page.items:
                if self._is_ours(main):
                    of = Query(tenant=self._tenant, session=main.session)
                    found += [row async for row in every_row(self._store, of)]
            yield [row for row in found if row.last >= since]
            if (cursor := page.cursor) is None:
                return

    async def others(self, first: int) -> list[Changed]:
        """Return changed logs that the activity of sessions does not show: threads that changed
        recently, and what the next step of the review finds."""
        now = asyncio.get_running_loop().time()
        while self._hot and next(iter(self._hot.values())) < now:
            self._hot.popitem(last=False)
        found = await self._rows([*self._hot])
        if now - self._reviewed >= REVIEW_SECONDS:
            self._reviewed = now
            query = Query(tenant=self._tenant)
            page = await self._store.find(query, cursor=self._review, limit=REVIEWED)
            self._review = page.cursor
            for main in page.items:
                if self._is_ours(main):
                    found += await self._threads(main, 0, first)
        found = [one for one in found if one.row.last >= first and self.is_new(one.row)]
        for one in found:
            self._watch(one.row.key)
        return list({one.row.log: one for one in found}.values())

    async def _threads(self, main: Row, active: int, first: int) -> list[Changed]:
        """Return the changed threads of a session."""
        query = Query(tenant=self._tenant, session=main.session, active_from=active)
        page = await self._store.find(query, limit=THREADS)
        rows = {row.log: row for row in (main, *page.items)}.values()
        return [Changed(row, main) for row in rows if row.last >= first and self.is_new(row)]

    async def _rows(self, keys: Sequence[Key]) -> list[Changed]:
        if not keys:
            return []
        mains = [Key(key.tenant, key.session, "main") for key in keys]
        found = await self._store.rows([*keys, *mains])
        pairs = zip(found[: len(keys)], found[len(keys) :], strict=True)
        return [Changed(row, main) for row, main in pairs if row is not None and main is not None]

    def _watch(self, key: Key) -> None:
        self._hot[key] = asyncio.get_running_loop().time() + HOT_SECONDS
        self._hot.move_to_end(key)
        if len(self._hot) > HOT:
            self._hot.popitem(last=False)

    def _is_ours(self, main: Row) -> bool:
        return not main.session.startswith(INBOX)
