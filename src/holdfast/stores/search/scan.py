"""Full-text search without an index: reads the sessions from newest to oldest, and the events of
each thread backwards. One call reads a limited number of events, and returns a cursor to
continue."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from msgspec import Struct

from ...errors import InvalidValue, LogDamaged, LogReplaced, SessionNotFound
from ...log.catalog import Query, Row, SearchQuery, make_cursor, read_cursor
from ...log.events import Key
from ...values.search import Found, IndexProgress, SearchPage
from ..conversation import newest_first
from ..pages import existing_row
from ..port import Store
from .matching import Matching, in_conversation, threads_of

MOST_EVENTS = 5_000  # that one call reads at most
MOST_SESSIONS = 1_000


class _Place(Struct, frozen=True):
    """The position at which a scan continues. `after` is the cursor of the list of sessions, up to
    the current `session`, which was created at time `began`. `thread` is the sort key of the
    current thread, and `before` is the number of the event before which to continue."""

    after: str | None = None
    session: str | None = None
    began: int = 0
    thread: tuple[int, bool, str] = (0, False, "")
    before: int | None = None


async def scan(
    store: Store, query: SearchQuery, *, cursor: str | None = None, limit: int = 20
) -> SearchPage:
    """Return one page of matches, by reading the events."""
    return await _Scan(store, query, limit).page(cursor)


async def no_index() -> AsyncGenerator[IndexProgress, None]:
    """Yield nothing: a store without an index has no indexing progress."""
    none: tuple[IndexProgress, ...] = ()
    for progress in none:
        yield progress


class _Scan:
    def __init__(self, store: Store, query: SearchQuery, limit: int) -> None:
        self._store = store
        self._query = query
        self._limit = limit
        self._matching = Matching(store, query)
        self._hits: list[Found] = []
        self._events = MOST_EVENTS
        self._sessions = MOST_SESSIONS

    async def page(self, cursor: str | None) -> SearchPage:
        place: _Place | None = self._place(cursor)
        while place is not None and not self._full:
            place = await self._next_session(place)
        hits = sorted(self._hits, key=lambda hit: hit.at, reverse=True)
        more = None
        if place is not None:
            more = make_cursor(self._query, 0, msgspec.json.encode(place).decode())
        return SearchPage(hits=hits, cursor=more, scanned=True)

    def _place(self, cursor: str | None) -> _Place:
        if cursor is None:
            return _Place()
        _, place = read_cursor(self._query, cursor)
        try:
            return msgspec.json.decode(str(place), type=_Place)
        except msgspec.MsgspecError as error:
            raise InvalidValue(
                field="cursor",
                problem="belongs to a search with an index",
                remedy="start from the first page",
            ) from error

    @property
    def _full(self) -> bool:
        return len(self._hits) >= self._limit or self._events <= 0 or self._sessions <= 0

    async def _next_session(self, place: _Place) -> _Place | None:
        """Search one session. Returns the position at which to continue, or None at the end."""
        main, after = await self._session(place.after)
        if main is None:
            return None
        self._sessions -= 1
        same = main.session == place.session
        if place.session is not None and not same and main.created >= place.began:
            # This session was created after the search began: skip it.
            return None if after is None else msgspec.structs.replace(place, after=after)
        if self._matching.takes_session(main):
            stopped = await self._search(main, place if same else _Place())
            if stopped is not None:
                row, before = stopped
                return _Place(place.after, main.session, main.created, _order(row), before)
        return None if after is None else _Place(after)

    async def _session(self, after: str | None) -> tuple[Row | None, str | None]:
        """Return the row of the next session, and the cursor of the session after it."""
        query = self._query
        if query.session is not None:
            return await existing_row(self._store, Key(query.tenant, query.session, "main")), None
        sessions = Query(
            tenant=query.tenant,
            user=query.user,
            phases=query.phases,
            label=query.labels[0] if query.labels else None,
            order="created",
        )
        page = await self._store.find(sessions, cursor=after, limit=1)
        return (page.items[0] if page.items else None), page.cursor

    async def _search(self, main: Row, place: _Place) -> tuple[Row, int] | None:
        """Search the threads of a session. If a limit is reached before the end, returns the thread
        and the number of the event before which to continue."""
        earlier: list[Row] = []
        async with aclosing(threads_of(self._store, main.tenant, main.session)) as found:
            rows = [row async for row in found if self._matching.takes_thread(row, main)]
        for row in sorted(rows, key=_order):
            if _order(row) >= place.thread:
                resumed = place.before if _order(row) == place.thread else None
                before = row.head + 1 if resumed is None else resumed
                stopped = await self._search_thread(row, main, earlier, before)
                if stopped is not None:
                    return row, stopped
            earlier.append(row)
        return None

    async def _search_thread(
        self, row: Row, main: Row, earlier: list[Row], before: int
    ) -> int | None:
        last = min(row.head, before - 1)
        while last > 0:
            events = newest_first(self._store, row.key, log=row.log, last=last)
            try:
                async with aclosing(events):
                    async for event in events:
                        if self._full:
                            return event.seq + 1
                        last = event.seq - 1
                        self._events -= 1
                        hit = await self._matching.found(row, main, event)
                        if hit is not None and not await self._matching.is_repeated(
                            row, event, earlier, self._in_conversation
                        ):
                            self._hits.append(hit)
                return None
            except (SessionNotFound, LogReplaced):
                return None  # the thread was deleted meanwhile
            except LogDamaged as error:
                last = error.seq - 1  # continue before the damaged event
        return None

    async def _in_conversation(self, row: Row, seq: int) -> bool:
        return await in_conversation(self._store, row, seq)


def _order(row: Row) -> tuple[int, bool, str]:
    """Return the sort key of a thread within its session. A fork is sorted after its parent, even
    if both were created at the same time."""
    return row.created, row.parent is not None, row.thread
