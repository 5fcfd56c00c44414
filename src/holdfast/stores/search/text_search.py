"""Full-text search for a store that has an index. A search updates the index, queries it, and
checks the candidates against their events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress

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
    SeparateTextIndex,
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

PATIENCE = 1.0  # seconds that a search waits for an update of the index
PERIOD = 2.0  # seconds between two updates of the index in the background
CANDIDATES = 2_000  # that one call checks at most
STEP = 64  # candidates of the second query of a page; each further one takes twice as many
MOST_STEP = 500
TRIES = 3  # searches, if the index is removed at the same time
LAST = (1 << 63) - 1


class TextSearch:
    """Searches one store with an index. The first search creates the index, and each search updates
    it; after the first search it is also updated in the background."""

    def __init__(self, store: Store, index: TextIndex, changes: Changes) -> None:
        self._store = store
        self._index = index
        self._indexer = Indexer(store, index, changes)
        self._running: asyncio.Task[bool] | None = None
        self._background: asyncio.Task[None] | None = None
        self._created = False
        self._waiting = 0  # callers that wait for the index
        self._progress = IndexProgress(done=0, total=0)

    async def search(self, query: SearchQuery, *, cursor: str | None, limit: int) -> SearchPage:
        for _ in range(TRIES):
            if not (self._created or await self._index.create()):
                break
            self._created = True
            with suppress(NoIndex):  # it was removed meanwhile
                return await self._search(query, cursor, limit)
            self._created = False
        return await scan(self._store, query, cursor=cursor, limit=limit)

    async def _search(self, query: SearchQuery, cursor: str | None, limit: int) -> SearchPage:
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
        """Rebuild the index, and yield the progress."""
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
        """Return a context manager that removes events from the index. The block removes them from
        the store, and from an index in the same database."""
        if not isinstance(self._index, SeparateTextIndex):
            return nullcontext()
        return removing(self._store, self._index, target, seqs)

    def left_behind(self, where: str) -> tuple[Remains, ...]:
        """Return the data of removed events that remains in the index file, for the receipt of a
        removal. `where` is the location of the index."""
        if not self._index.keeps_words:
            return ()
        what = "removed words in the search index, without their order"
        return (Remains(where=where, what=what, remedy="run `holdfast purge`"),)

    async def purge(self) -> bool:
        """Erase removed terms from the files of the index. Returns whether that is done."""
        return not await self._index.exists() or await self._index.optimize()

    async def aclose(self) -> None:
        for task in (self._background, self._running):
            if task is not None:
                await ended(task)
        await self._index.aclose()

    # Indexing

    async def _waited(self) -> bool:
        """Update the index at full speed, for a limited time. Returns whether the index is up to
        date."""
        self._waiting += 1
        self._indexer.hurry.set()
        try:
            return await self._caught_up(PATIENCE)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._indexer.hurry.clear()

    async def _caught_up(self, within: float) -> bool:
        """Wait for an update of the index, for at most `within` seconds. Returns whether the index
        is up to date; otherwise the update continues in the background."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        stale = self._running  # began before this call, so it may miss the newest events
        while (left := end - loop.time()) > 0:
            running = self._running
            if running is None or running.done():
                running = self._running = asyncio.create_task(self._catch_up())
            await asyncio.wait([running], timeout=left)
            if not running.done():
                return False
            if running is not stale:
                if running.result():
                    return True
                await asyncio.sleep(0.02)  # another process is indexing
        return False

    async def _catch_up(self) -> bool:
        try:
            return await self._indexer.catch_up(self._report)
        except NoIndex:
            await self._index.create()  # another process removed it
            return False
        except StoreError as error:
            logger.warning(
                "updating the search index failed, so searches may miss new events: %s", error
            )
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
        """Return a page of matches, and the position below which the next page begins."""
        wanted = _conditions(query, matching)
        least = 0 if query.since is None else floor_of(query.since)
        hits: list[Found] = []
        checked = 0
        step = min(limit + 1, STEP)
        while checked < CANDIDATES:
            found = await self._index.find(query.tenant, wanted, below, least, step)
            check = _Check(self._store, self._index, matching)
            await check.load(found)
            done = 0
            while done < len(found) and len(hits) < limit:
                some = found[done : done + limit - len(hits)]
                hits += [hit for hit in await asyncio.gather(*map(check, some)) if hit is not None]
                done += len(some)
                below = some[-1].id
            if done == len(found) < step:
                return hits, None
            if len(hits) == limit:
                break
            checked += done
            step = min(max(2 * step, STEP), MOST_STEP, max(1, CANDIDATES - checked))
        return hits, below


class _Check:
    """Checks candidates of the index against the rows and events of the store."""

    def __init__(self, store: Store, index: TextIndex, matching: Matching) -> None:
        self._store = store
        self._index = index
        self._matching = matching
        self._rows: dict[Key, Row] = {}

    async def load(self, candidates: Sequence[Candidate]) -> None:
        """Read the rows of the candidates' threads, and of the main threads of their sessions."""
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
        """Return whether an event still belongs to the conversation. Also considers rewinds that
        are not indexed yet."""
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
    """Return the position in the sort order below which a page begins."""
    below = LAST if query.until is None else floor_of(query.until)
    if cursor is None:
        return below
    place, tie = read_cursor(query, cursor)
    if isinstance(tie, str):
        raise InvalidValue(
            field="cursor",
            problem="belongs to a search without an index",
            remedy="start from the first page",
        )
    return min(below, place)


def _conditions(query: SearchQuery, matching: Matching) -> list[Condition]:
    """Return the conditions of a query for the index."""
    text = matching.text
    found = conditions(text)
    if query.session is not None:
        found.append(Condition(session_term(query.session)))
    if len(text.roles) == 1:
        found.append(Condition(role_term(text.roles[0])))
    found += [Condition(tool_term(tool)) for tool in text.tools]
    if not any(not one.negative for one in found):
        found.append(Condition("=", prefix=True))  # only messages and results have roles
    return found
