"""Anchors: links (chained hashes) of logs, kept outside the store as evidence against tampering.

An attacker with write access to the whole database can alter an event and recompute all links. An
anchor that is kept elsewhere stays unchanged: it records the link of an event, and the link depends
on all events before it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress

from msgspec import Struct

from ..environment import wall_clock
from ..errors import LogReplaced, SessionNotFound
from ..log.catalog import Query, Row
from ..log.events import Key
from .pages import every_row
from .port import Damage, Store

GONE = "the anchored log no longer exists: it was deleted, or deleted and created again"
OTHER = "its link differs from the anchor: this event or an earlier event was altered"


class Anchor(Struct, frozen=True, kw_only=True):
    """The link (chained hash) of event `seq` of a log, recorded at the time `at` (UTC in ms)."""

    tenant: str
    session: str
    thread: str
    log: str
    seq: int
    link: str
    at: int

    @property
    def key(self) -> Key:
        return Key(self.tenant, self.session, self.thread)


async def anchors(
    store: Store, tenant: str, session: str | None = None
) -> AsyncGenerator[Anchor, None]:
    """Yield the current anchors of all logs of a tenant, or of one session. A log has no anchor if
    all its events were written by an older release, which did not compute links."""
    async with aclosing(_rows(store, tenant, session)) as rows:
        async for row in rows:
            link = row.link
            if link is None:
                with suppress(LogReplaced, SessionNotFound):  # it was deleted meanwhile
                    link = await store.link(row.key, row.head, log=row.log)
            if link is not None:
                yield Anchor(
                    tenant=row.tenant,
                    session=row.session,
                    thread=row.thread,
                    log=row.log,
                    seq=row.head,
                    link=link,
                    at=wall_clock(),
                )


async def _rows(store: Store, tenant: str, session: str | None) -> AsyncGenerator[Row, None]:
    query = Query(tenant=tenant, session=session, order="created", newest_first=False)
    async with aclosing(every_row(store, query)) as rows:
        async for row in rows:
            yield row
            if session is None:
                async with aclosing(_rows(store, tenant, row.session)) as threads:
                    async for thread in threads:
                        if thread.thread != row.thread:
                            yield thread


async def held(store: Store, kept: Iterable[Anchor]) -> AsyncGenerator[Damage, None]:
    """Compare a store with anchors. Yields a `Damage` for each log that was deleted, shortened or
    altered since its anchor was created."""
    for anchor in kept:
        try:
            found = await _compared(store, anchor)
        except (LogReplaced, SessionNotFound):
            found = Damage(problem="missing", detail=GONE, key=anchor.key, seq=anchor.seq)
        if found is not None:
            yield found


async def _compared(store: Store, anchor: Anchor) -> Damage | None:
    key, seq = anchor.key, anchor.seq
    row = await store.row(key)
    if row is not None and seq > row.head and row.log == anchor.log:
        detail = f"events up to {seq} are missing, although an anchor includes them"
        return Damage(problem="missing", detail=detail, key=key, seq=row.head + 1)
    if await store.link(key, seq, log=anchor.log) == anchor.link:
        return None
    return Damage(problem="broken", detail=OTHER, key=key, seq=seq)
