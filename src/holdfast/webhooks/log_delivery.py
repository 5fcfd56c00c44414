"""Delivers the events of one log to one endpoint, in order: each event is sent again until the
receiver accepts it or it becomes a dead letter, and only then the next one is sent.

The position in the log is stored after each delivery. A log with events left to deliver is marked
as due in the same append, so that another process finds it after a crash.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..backoff import Backoff
from ..environment import wall_clock
from ..errors import HeadMoved, LogDamaged, LogReplaced, SessionNotFound
from ..log import events as ev
from ..log.catalog import Row
from ..log.events import Event, Key
from ..stores.port import Store
from ..values.webhooks import WebhookEndpoint, WebhookReply
from .message import wants
from .records import DEAD, event_of, first_event, key_of, last, position

FIRST, LONGEST = 5.0, 3_600.0  # seconds between two attempts: the first wait, and the longest
JITTER = 0.2
BATCH = 50  # events that are read at a time
SKIPPED = 100  # events that an endpoint does not want, until its position is stored
GONE = 410

Send: TypeAlias = Callable[[Event, Row, Row], Awaitable[WebhookReply]]
Result: TypeAlias = Literal["done", "failed", "gone"]


class LogWork(Struct, frozen=True, kw_only=True):
    """A log with events to deliver: its row, the row of the session's main thread, and the row with
    the endpoint's position in it."""

    row: Row
    main: Row
    place: Row | None


class LogDelivery:
    """Delivers the next events of one log."""

    def __init__(
        self, store: Store, tenant: str, endpoint: WebhookEndpoint, work: LogWork, send: Send
    ) -> None:
        self._store, self._endpoint, self._send = store, endpoint, send
        self._row, self._main, self._place = work.row, work.main, work.place
        self._key = key_of(tenant, endpoint.id, work.row.log)
        self._dead = key_of(tenant, endpoint.id, DEAD)
        self._head = 0 if work.place is None else work.place.head
        self._marked = work.place is not None and work.place.due is not None
        self._damaged = 0  # an event that cannot be read

    async def deliver(self) -> Result:
        """Deliver up to `BATCH` events. Returns "done" if no event is left or the rest is marked as
        due, "failed" after a failed attempt, and "gone" if the receiver wants no more
        deliveries."""
        try:
            return await self._deliver()
        except HeadMoved:  # another process moved the position, and marked the log as due
            return "done"
        except (SessionNotFound, LogReplaced):  # the session was deleted
            with suppress(HeadMoved):
                await self._store.delete(self._key, expected=self._head)
            return "done"

    async def _deliver(self) -> Result:
        before, start = await self._failure(), position(self._place)
        if start is None:
            start = await first_event(self._store, self._row, self._endpoint.since)
        saved = reached = start
        for event in await self._next(start):
            if wants(self._endpoint, event, self._row, self._main):
                reply = await self._send(event, self._row, self._main)
                if reply.status == GONE:
                    return "gone"
                if not reply.ok:
                    known = before if before is not None and before.seq == event.seq else None
                    await self._failed(event, reply, known)
                    return "failed"
                await self._save(event.seq)
                saved = event.seq
            reached = event.seq
        reached = max(reached, self._damaged)
        more, skipped = reached < self._row.head, reached - saved
        if (skipped and more) or skipped >= SKIPPED or (self._marked and not more):
            await self._save(reached)
        return "done"

    async def _next(self, after: int) -> list[Event]:
        found: list[Event] = []
        read = self._store.read(
            self._row.key, after=after, limit=BATCH, log=self._row.log, inline=False
        )
        try:
            async with aclosing(read) as events:
                async for event in events:
                    found.append(event)
        except LogDamaged as damage:
            if not found:  # else the events before it come first
                self._damaged = damage.seq or 0
        return found

    async def _failure(self) -> ev.SurfaceFailed | None:
        """Return the latest failure, if the next event has failed before."""
        if self._place is None or self._place.due is None:
            return None
        found = await last(self._store, self._place)
        return found if isinstance(found, ev.SurfaceFailed) and not found.dead else None

    async def _save(self, seq: int) -> None:
        """Store the position. If more events follow, the log is marked as due."""
        more = seq < self._row.head
        await self._append(
            ev.SurfaceDelivered(
                session=self._row.session,
                thread=self._row.thread,
                log=self._row.log,
                seq=seq,
                due=wall_clock() if more else None,
            )
        )

    async def _failed(
        self, event: Event, reply: WebhookReply, before: ev.SurfaceFailed | None
    ) -> None:
        """Store a failed attempt, and when the next one is due. After too long, the event becomes a
        dead letter."""
        now = wall_clock()
        since = now if before is None else before.since
        attempts = 1 if before is None else before.attempts + 1
        end = since + self._endpoint.give_up * 1000
        failed = ev.SurfaceFailed(
            session=self._row.session,
            thread=self._row.thread,
            log=self._row.log,
            seq=event.seq,
            since=since,
            attempts=attempts,
            error=reply.problem,
            status=reply.status,
        )
        if now < end:
            due = min(now + int(delay(attempts, reply) * 1000), end)
            await self._append(replace(failed, due=due))
            return
        # First the dead letter: after a crash here, the event is sent once more.
        await bury(self._store, self._dead, replace(failed, dead=True))
        more = event.seq < self._row.head
        await self._append(replace(failed, dead=True, due=now if more else None))

    async def _append(self, payload: ev.SurfaceDelivered | ev.SurfaceFailed) -> None:
        events = [event_of(payload)]
        if not self._head:
            events.insert(0, event_of(ev.ThreadCreated(agent=self._endpoint.id)))
        done = await self._store.append(
            self._key, events, expected=self._head, create=not self._head
        )
        self._head, self._marked = done.head, payload.due is not None


async def bury(store: Store, key: Key, dead: ev.SurfaceFailed) -> None:
    """Add a dead letter to the log of dead letters."""
    await store.append(key, [event_of(dead)], create=True)


def delay(attempts: int, reply: WebhookReply) -> float:
    """Return the seconds until the next attempt: twice as long each time, and at least as long as
    the receiver asked for."""
    first = min(FIRST * 2 ** min(attempts - 1, 32), LONGEST)
    wait = Backoff(first, LONGEST, jitter=JITTER).next()
    return max(wait, min(reply.retry_after or 0.0, LONGEST))
