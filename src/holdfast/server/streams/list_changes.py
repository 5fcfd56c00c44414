"""Watches the lists of a server for changes: which rows and pending items are new or different.

One task queries the stores for all readers of the same list, so that the cost does not depend on
the number of readers. The store has no notification of new rows, so the task looks once a second,
for the rows with activity since it last looked.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeAlias

import msgspec

from ...cancellation import ended
from ...environment import wall_clock
from ...errors import HoldfastError
from ...log.catalog import PendingQuery, Query, Row
from ...wire import CAUGHT_UP, END, PENDING, RESYNC, ROW, End, InboxChanged, ListResync
from ..placement.locator import SessionLocator
from ..placement.pagination import page

LOOK = 1.0  # seconds between two queries
BACK = 3  # seconds that a query looks back, for clocks that differ
MOST = 100  # changed rows of one query; if there are more, readers are told to read the list again
ROOM = 256  # frames that wait for one reader
HEARTBEAT = 10.0  # seconds of silence after which a comment is sent
STILL = 5.0  # seconds between two checks of the reader's credentials
COMMENT = b":\n\n"

Audience: TypeAlias = "tuple[str, str | None]"  # tenant, and user or None for all users


class ListChanges:
    """The lists that are watched now, by tenant and user."""

    def __init__(self, places: SessionLocator, leaving: asyncio.Event) -> None:
        self._places, self._leaving = places, leaving
        self._watched: dict[Audience, WatchedList] = {}

    async def frames(
        self, audience: Audience, still: Callable[[], Awaitable[bool]] | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the changes of a list as server-sent events: first `caught_up`, then each changed
        row. `still` is called every few seconds; the stream ends when it returns False."""
        watched = self._watched.get(audience)
        if watched is None:
            watched = self._watched[audience] = WatchedList(self._places, audience)
        reader = watched.join()
        leaving = asyncio.create_task(self._leaving.wait())
        checked = sent = time.monotonic()
        try:
            yield frame(CAUGHT_UP, {})
            while True:
                told = await _next(reader, leaving)
                if leaving.done():
                    yield frame(END, End(reason="shutdown"))
                    return
                now = time.monotonic()
                if still is not None and now - checked >= STILL:  # a busy list is no exception
                    checked = now
                    if not await still():
                        yield frame(END, End(reason="closed"))
                        return
                if told or now - sent >= HEARTBEAT:
                    sent = now
                    yield told or COMMENT
        finally:
            await ended(leaving)
            if not watched.leave(reader):
                self._watched.pop(audience, None)
                await watched.aclose()


async def _next(reader: asyncio.Queue[bytes], leaving: asyncio.Task[bool]) -> bytes:
    """Return all frames that wait for a reader, as one piece; empty if there are none for a
    second, or the server shuts down."""
    getting = asyncio.create_task(reader.get())
    try:
        waiting = {getting, leaving}
        await asyncio.wait(waiting, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            return b""
        frames = [getting.result()]
        while not reader.empty():
            frames.append(reader.get_nowait())
        return b"".join(frames)
    finally:
        await ended(getting)


class WatchedList:
    """One list, its readers, and the task that looks for changes."""

    def __init__(self, places: SessionLocator, audience: Audience) -> None:
        self._places = places
        self._tenant, self._user = audience
        self._readers: set[asyncio.Queue[bytes]] = set()
        self._heads: dict[str, int] | None = None  # by log; None until the first look
        self._tag: str | None = None
        self._since = wall_clock() // 1000
        self._looking = asyncio.create_task(self._look(), name=f"watch {self._tenant}")

    def join(self) -> asyncio.Queue[bytes]:
        """Add a reader."""
        reader: asyncio.Queue[bytes] = asyncio.Queue(ROOM)
        self._readers.add(reader)
        return reader

    def leave(self, reader: asyncio.Queue[bytes]) -> bool:
        """Remove a reader. Returns whether any are left."""
        self._readers.discard(reader)
        return bool(self._readers)

    async def aclose(self) -> None:
        """Stop looking for changes."""
        await ended(self._looking)

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(HoldfastError):  # an unavailable store is asked again
                await self._rows()
                await self._inbox()
            await asyncio.sleep(LOOK)

    async def _rows(self) -> None:
        started = wall_clock() // 1000
        query = Query(tenant=self._tenant, user=self._user, active_from=self._since - BACK)
        found = await page(
            self._places,
            query,
            lambda one, after, most: one.find(query, cursor=after, limit=most),
            limit=MOST,
        )
        heads = {row.log: row.head for row in found.items}
        if self._heads is not None:
            if found.cursor is not None:
                self._tell(frame(RESYNC, ListResync(reason="too many sessions have changed")))
            else:
                for row in reversed(found.items):
                    if self._heads.get(row.log) != row.head:
                        self._tell(frame(ROW, self._shown(row)))
        self._heads, self._since = heads, started

    async def _inbox(self) -> None:
        query = PendingQuery(tenant=self._tenant, user=self._user)
        found = await page(
            self._places,
            query,
            lambda one, after, most: one.pending(query, cursor=after, limit=most),
            limit=MOST,
        )
        known = [(item.session, item.thread, item.id, item.expires) for item in found.items]
        tag = msgspec.json.encode(known).decode()
        if self._tag is not None and tag != self._tag:
            more = found.cursor is not None
            self._tell(frame(PENDING, InboxChanged(items=len(found.items), more=more)))
        self._tag = tag

    def _shown(self, row: Row) -> Row:
        return self._places.naming.row(row)

    def _tell(self, told: bytes) -> None:
        for reader in self._readers:
            if not reader.full():
                reader.put_nowait(told)
                continue
            while not reader.empty():  # it does not keep up: it reads the list again instead
                reader.get_nowait()
            reader.put_nowait(frame(RESYNC, ListResync(reason="the reader is too slow")))


def frame(name: str, data: object) -> bytes:
    """Encode one server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
