"""The search of a store that has an index: brings the index up to date, asks it, and checks what it
finds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing

from ...cancellation import ended
from ...errors import InvalidValue, StoreError
from ...log.catalog import Row, SearchQuery, make_cursor, read_cursor
from ...log.conversation import rewound_to
from ...log.events import Key, Scope
from ...log.search import Condition, conditions
from ...values.records import Remains
from ...values.search import Found, IndexProgress, SearchPage
from ..pages import existing_row
from ..port import Store
from .index import (
    Candidate,
    LogPosition,
    NoIndex,
    TextIndex,
    floor_of,
    is_current,
    role_term,
    session_term,
    tool_term,
)
from .indexer import Changes, Indexer
from .matching import Matching, event_at, threads_of
from .removal import removing
from .scan import scan

logger = logging.getLogger("holdfast.search")

PATIENCE = 1.0  # seconds that a search waits for the index
PERIOD = 2.0  # seconds between two looks at what changed, after the first search
CANDIDATES = 2_000  # that one call checks
STEP = 64
LAST = (1 << 63) - 1


class TextSearch:
    """Searches one store by its index. The index is created by the first search, and brought up to
    date by each; from then on it is also brought up to date in the background."""

    def __init__(self, store: Store, index: TextIndex, changes: Changes) -> None:
        self._store = store
        self._index = index
        self._indexer = Indexer(store, index, changes)
        self._running: asyncio.Task[bool] | None = None
        self._background: asyncio.Task[None] | None = None
        self._waiting = 0  # callers that wait for the index
        self._progress = IndexProgress(done=0, total=0)

    async def search(self, query: SearchQuery, *, cursor: str | None, limit: int) -> SearchPage:
        if not await self._index.create():
            return await scan(self._store, query, cursor=cursor, limit=limit)
        matching = Matching(self._store, query)
        if query.session is not None:
            await existing_row(self._store, Key(query.tenant, query.session, "main"))
        below = _below(query, cursor)
        behind = not await self._waited()
        if self._background is None:
            self._background = asyncio.create_task(self._keep_up())
        hits, more = await self._find(query, matching, below, limit)
        after = None if more is None else make_cursor(query, more, 0)
        return SearchPage(hits=hits, cursor=after, behind=behind)

    async def reindex(self) -> AsyncGenerator[IndexProgress, None]:
        """Create the index anew, and yield the progress."""
        if not await self._index.create():
            return
        await self._index.reset()
        self._progress = IndexProgress(done=0, total=0)
        finished = False
        while not finished:
            finished = await self._waited()
            yield self._progress

    def removing(
        self, target: Scope | Key, seqs: Sequence[int] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Context manager around the removal of events from the store."""
        return removing(self._store, self._index, target, seqs)

    def left_behind(self, where: str) -> tuple[Remains, ...]:
        """Return what removed events leave in the index, which is at `where`."""
        if not self._index.keeps_words:
            return ()
        what = "single words of the search index, in no order"
        return (Remains(where=where, what=what, remedy="holdfast purge"),)

    async def purge(self) -> None:
        """Remove what is left of removed words."""
        if await self._index.exists():
            await self._index.optimize()

    async def aclose(self) -> None:
        for task in (self._background, self._running):
            if task is not None:
                await ended(task)
        await self._index.aclose()

    # Indexing

    async def _waited(self) -> bool:
        """Bring the index up to date at full speed, for a bounded time. Returns whether it is."""
        self._waiting += 1
        self._indexer.hurry.set()
        try:
            return await self._caught_up(PATIENCE)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._indexer.hurry.clear()

    async def _caught_up(self, within: float) -> bool:
        """Bring the index up to date, for some time at most. Returns whether it is; otherwise the
        work goes on."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        while (left := end - loop.time()) > 0:
            begun = self._running is None or self._running.done()
            if begun:
                self._running = asyncio.create_task(self._catch_up())
            assert self._running is not None
            await asyncio.wait([self._running], timeout=left)
            if not self._running.done():
                return False
            if begun:
                if self._running.result():
                    return True
                await asyncio.sleep(0.02)  # another process indexes
        return False

    async def _catch_up(self) -> bool:
        try:
            return await self._indexer.catch_up(self._report)
        except (StoreError, NoIndex) as error:
            logger.warning("the search index is not up to date: %s", error)
            return False

    def _report(self, done: int, total: int) -> None:
        self._progress = IndexProgress(done=done, total=total)

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            await self._caught_up(PERIOD)

    # Finding

    async def _find(
        self, query: SearchQuery, matching: Matching, below: int, limit: int
    ) -> tuple[list[Found], int | None]:
        """Return matches, and the place below which to continue."""
        wanted = _conditions(query, matching, await self._index.tenant(query.tenant))
        least = 0 if query.since is None else floor_of(query.since)
        hits: list[Found] = []
        checked = 0
        while checked < CANDIDATES:
            found = await self._index.find(wanted, below, least, STEP)
            check = _Check(self._store, self._index, matching)
            await check.load(found)
            for start in range(0, len(found), limit - len(hits) or 1):
                if len(hits) == limit:
                    return hits, below
                some = found[start : start + limit - len(hits)]
                for candidate, hit in zip(
                    some, await asyncio.gather(*map(check, some)), strict=True
                ):
                    if hit is not None:
                        hits.append(hit)
                    below = candidate.id
            if len(found) < STEP:
                return hits, None
            if len(hits) == limit:
                break
            checked += len(found)
        return hits, below


class _Check:
    """Checks candidates against the rows and events of the store."""

    def __init__(self, store: Store, index: TextIndex, matching: Matching) -> None:
        self._store = store
        self._index = index
        self._matching = matching
        self._rows: dict[Key, Row] = {}

    async def load(self, candidates: Sequence[Candidate]) -> None:
        """Read the rows of candidates, and of their sessions."""
        keys = {candidate.position.key for candidate in candidates}
        keys |= {Key(key.tenant, key.session, "main") for key in keys}
        if keys:
            rows = await self._store.rows(sorted(keys))
            self._rows = {row.key: row for row in rows if row is not None}

    async def __call__(self, candidate: Candidate) -> Found | None:
        position = candidate.position
        row = self._rows.get(position.key)
        main = self._rows.get(Key(position.key.tenant, position.key.session, "main")) or row
        if row is None or main is None or row.log != position.log:
            return None
        if not (self._matching.takes_session(main) and self._matching.takes_thread(row, main)):
            return None
        if not await self._is_current(row, candidate.seq, position=position):
            return None
        event = await event_at(self._store, row.key, row.log, candidate.seq)
        hit = None if event is None else await self._matching.found(row, main, event)
        if event is None or hit is None:
            return None
        if row.parent is not None and event.seq <= row.parent.at:
            earlier = await self._earlier(row, main)
            if await self._matching.is_repeated(row, event, earlier, self._is_current):
                return None
        return hit

    async def _is_current(self, row: Row, seq: int, *, position: LogPosition | None = None) -> bool:
        """Return whether no rewind removed an event, also none that is not in the index yet."""
        if position is None:
            (position,) = await self._index.positions([row])
        rewinds = list(position.rewinds)
        if row.head > position.seq:
            events = self._store.read(row.key, after=position.seq, log=row.log)
            async with aclosing(events):
                async for event in events:
                    if (to := rewound_to(event)) is not None:
                        rewinds.append((event.seq, to))
        whole = LogPosition(log=row.log, key=row.key, seq=row.head, rewinds=tuple(rewinds))
        return is_current(whole, seq)

    async def _earlier(self, row: Row, main: Row) -> list[Row]:
        """Return the older threads of the session that pass the filters."""
        earlier: list[Row] = []
        async with aclosing(threads_of(self._store, row.tenant, row.session)) as rows:
            async for other in rows:
                if other.key == row.key:
                    break
                if self._matching.takes_thread(other, main):
                    earlier.append(other)
        return earlier


def _below(query: SearchQuery, cursor: str | None) -> int:
    """Return the place below which a page begins."""
    below = LAST if query.until is None else floor_of(query.until)
    if cursor is None:
        return below
    place, tie = read_cursor(query, cursor)
    if isinstance(tie, str):
        raise InvalidValue(
            field="cursor", problem="is of a search without an index", remedy="start again"
        )
    return min(below, place)


def _conditions(query: SearchQuery, matching: Matching, tenant: int) -> list[Condition]:
    """Return the terms that the index is asked for. Each has the number of the tenant."""
    text = matching.text
    found = conditions(text)
    if query.session is not None:
        found.append(Condition(session_term(query.session)))
    if len(text.roles) == 1:
        found.append(Condition(role_term(text.roles[0])))
    found += [Condition(tool_term(tool)) for tool in text.tools]
    if not any(not one.negative for one in found):
        found.append(Condition("=", prefix=True))  # only messages and results have roles
    return [one._replace(term=f"{tenant}:{one.term}") for one in found]
