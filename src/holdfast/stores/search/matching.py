"""Checks the candidates of a search against their events and rows. The index may be out of date, so
this check decides which candidates match."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from ...errors import LogDamaged, LogReplaced, SessionNotFound
from ...log.catalog import Query, Row, SearchQuery
from ...log.events import Event, Key
from ...log.search import EventText, event_text, excerpt, match, named_calls, parse_query
from ...values.search import Found
from ..conversation import newest_first
from ..pages import every_row
from ..port import Store

NAMED = 256  # number of events before a tool result that are searched for its call

IsCurrent = Callable[[Row, int], Awaitable[bool]]


class Matching:
    """Decides which events match a query."""

    def __init__(self, store: Store, query: SearchQuery) -> None:
        self._store = store
        self._query = query
        self.text = parse_query(query.text)
        self._by_tool = bool(self.text.tools or self.text.not_tools)

    def takes_session(self, main: Row) -> bool:
        """Return whether a session passes the filters; `main` is the row of its thread `main`."""
        query = self._query
        if query.session not in (None, main.session) or query.user not in (None, main.user):
            return False
        if query.phases and main.phase not in query.phases:
            return False
        return all(label in main.labels for label in query.labels)

    def takes_thread(self, row: Row, main: Row) -> bool:
        """Return whether a thread passes the filters; `main` is the row of the thread `main` of its
        session."""
        return self._query.agent in (None, row.agent or main.agent)

    async def found(self, row: Row, main: Row, event: Event) -> Found | None:
        """Return the match in an event, or None if the event does not match the query."""
        query = self._query
        if query.kind not in (None, event.kind) or event.at < (query.since or 0):
            return None
        if query.until is not None and event.at >= query.until:
            return None
        text = event_text(event)
        if text is not None and self._by_tool and text.call is not None:
            text = await with_tool(self._store, row, event, text)
        matched = None if text is None else match(self.text, text)
        if text is None or matched is None:
            return None
        shown, marks = excerpt(matched)
        return Found(
            session=row.session,
            thread=row.thread,
            seq=event.seq,
            at=event.at,
            kind=event.kind,
            excerpt=shown,
            marks=marks,
            role=text.role,
            by=event.actor,
            call=text.call,
            title=main.title,
        )

    async def is_repeated(
        self, row: Row, event: Event, earlier: Sequence[Row], is_current: IsCurrent
    ) -> bool:
        """Return whether an event is shared with one of the `earlier` threads, which already
        reports it as a match."""
        if row.parent is None or event.seq > row.parent.at:
            return False
        for other in earlier:
            try:
                known = await self._store.seqs(other.key, [event.id], log=other.log)
                if event.id in known and await is_current(other, known[event.id]):
                    return True
            except (SessionNotFound, LogReplaced):
                continue  # the thread was deleted meanwhile
        return False


async def with_tool(store: Store, row: Row, event: Event, text: EventText) -> EventText:
    """Return the text of a tool result, with the name of the tool added. The name is read from an
    earlier event, usually a few events before the result."""
    after = max(0, event.seq - NAMED)
    events = store.read(row.key, after=after, before=event.seq, reverse=True, log=row.log)
    try:
        async with aclosing(events):
            async for earlier in events:
                for call, name in named_calls(earlier):
                    if call == text.call:
                        return replace(text, tools=(name,))
    except (SessionNotFound, LogReplaced, LogDamaged):
        pass  # return the text without the tool's name
    return text


def threads_of(store: Store, tenant: str, session: str) -> AsyncGenerator[Row, None]:
    """Yield the threads of a session, oldest first."""
    query = Query(tenant=tenant, session=session, order="created", newest_first=False)
    return every_row(store, query)


async def in_conversation(store: Store, row: Row, seq: int) -> bool:
    """Return whether an event still belongs to the conversation of a log, so that no rewind removed
    it."""
    events = newest_first(store, row.key, log=row.log, last=row.head, after=seq - 1)
    async with aclosing(events):
        async for event in events:
            if event.seq == seq:
                return True
    return False


async def event_at(store: Store, key: Key, log: str, seq: int) -> Event | None:
    """Return an event, or None if it no longer exists or is damaged."""
    events = store.read(key, after=seq - 1, before=seq + 1, log=log)
    try:
        async with aclosing(events):
            async for event in events:
                return event
    except (SessionNotFound, LogReplaced, LogDamaged):
        pass
    return None
