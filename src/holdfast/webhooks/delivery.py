"""Delivers to one endpoint, for as long as this process has its lease.

Each round looks for logs that are due again, and for logs with news, and delivers some events of
each. All that a round leaves undone is either marked as due in the store, or behind the stored
cursor of the endpoint, so that another process continues after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..backoff import Backoff
from ..cancellation import cancellable, ended
from ..environment import wall_clock
from ..errors import (
    HeadMoved,
    LeaseLost,
    LogReplaced,
    SessionNotFound,
    StoreError,
    StoreUnavailable,
)
from ..log import events as ev
from ..log.catalog import Row
from ..log.events import Event, Key, Scope
from ..redact import Redactor
from ..stores.port import Lease, Store
from ..values.webhooks import WebhookReply
from . import inbox
from .addresses import target
from .feed import Changed, Feed
from .http import Sender
from .log_delivery import LogDelivery, LogWork, Result, bury
from .message import body_of, message_id
from .records import (
    CURSOR,
    DEAD,
    MAIN,
    SECRETS,
    TENANT,
    DeadLetter,
    DeadLetters,
    EndpointRecord,
    event_of,
    first_event,
    inbox_of,
    last,
    move_back,
    position,
    record_of,
    secrets_of,
)
from .signatures import headers

LOGGER = logging.getLogger("holdfast.webhooks")
CONCURRENT = 8  # deliveries to one endpoint at a time
TOLERATED = (
    3  # failures one after the other, until the endpoint is tried with one delivery at a time
)
PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between rounds while an endpoint fails
RETRIED = 100  # due logs that one round takes up
KEPT = 30  # seconds by which the stored cursor may be behind


class EndpointDelivery:
    """Delivers to one endpoint until its lease is lost or it is removed."""

    def __init__(
        self, store: Store, lease: Lease, sender: Sender, redactor: Redactor, *, poll: float
    ) -> None:
        self._store, self._lease, self._sender, self._redactor = store, lease, sender, redactor
        self._poll = poll
        self._tenant, self._id = lease.key.tenant.removeprefix(TENANT), lease.key.session
        self._feed = Feed(store, self._tenant)
        self._heads: dict[str, int] = {}  # of our own logs, as they were last read
        self._record: EndpointRecord | None = None
        self._secrets: list[tuple[str, int | None]] = []
        self._letters = DeadLetters()
        self._inbox: Row | None = None
        self._looked = self._saved = 0  # the cursor, and as it is stored
        self._cursor: Row | None = None
        self._failures = 0  # one after the other
        self._backoff = Backoff(PAUSE, LONGEST_PAUSE, jitter=0.2)
        self._resume = 0.0
        self._over = False

    async def run(self) -> None:
        """Deliver until the lease is lost, the endpoint is removed, or the task is cancelled."""
        renewing = asyncio.create_task(self._renew(), name="renew webhook endpoint")
        working = asyncio.create_task(self._work(), name=f"deliver to {self._id}")
        try:
            await asyncio.wait({renewing, working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(renewing, working)
            with contextlib.suppress(Exception):  # it expires
                await self._keep_cursor()
                await self._store.release(self._lease)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease.ttl / 3000)
            try:
                with cancellable():
                    self._lease = await self._store.renew(self._lease)
            except (LeaseLost, SessionNotFound, LogReplaced):
                return
            except Exception as error:
                if self._lease.until <= wall_clock():  # another process may have the endpoint
                    return
                LOGGER.warning("cannot renew the lease of a webhook endpoint: %s", _code(error))

    async def _work(self) -> None:
        while not self._over:
            busy = False
            try:
                with cancellable():
                    busy = await self.round()
            except (LeaseLost, SessionNotFound, LogReplaced):
                return
            except Exception as error:  # the next round tries again
                LOGGER.warning("cannot deliver to webhook endpoint %s: %s", self._id, _code(error))
            if not busy:
                await asyncio.sleep(self._poll)

    async def round(self) -> bool:
        """Deliver what is due and what is new. Returns whether there may be more."""
        record = await self._refresh()
        if record is None:
            self._over = True
            return False
        if record.why is not None:
            await self._stopped(record)
            return False
        if asyncio.get_running_loop().time() < self._resume:
            return False
        if record.replay is not None and (position(self._cursor) or 0) < record.replay_seq:
            await self._replay(record)
        await self._decided(record)
        busy = await self._due(record)
        return await self._new(record) or busy

    # The endpoint

    async def _refresh(self) -> EndpointRecord | None:
        """Read the logs of the endpoint that have changed. Returns None if it was removed."""
        keys = [Key(self._lease.key.tenant, self._id, one) for one in (MAIN, SECRETS, DEAD, CURSOR)]
        rows = await self._store.rows([*keys, inbox_of(self._tenant, self._id)])
        main, secrets, dead, self._cursor, self._inbox = rows
        if main is None or secrets is None:
            return None
        if self._grew(main) or self._record is None:
            self._record = await record_of(self._store, main.key)
            if self._record.why == "removed":
                await self._store.delete(Scope(main.tenant, self._id))
                return None
        if self._grew(secrets):
            self._secrets = await secrets_of(self._store, main.key)
        if dead is not None and self._grew(dead):
            after = self._letters.head
            await self._letters.catch_up(self._store.read(dead.key, after=after, log=dead.log))
        if not self._looked:
            stored = 0 if self._cursor is None else self._cursor.counts.get("looked", 0)
            self._looked = self._saved = stored or self._record.endpoint.since // 1000
        return self._record

    def _grew(self, row: Row) -> bool:
        """Return whether a log differs from what was read of it, and remember it as read."""
        mark = row.head + (row.erased << 32)
        changed = self._heads.get(row.thread) != mark
        self._heads[row.thread] = mark
        return changed

    async def _stopped(self, record: EndpointRecord) -> None:
        """Ask whether an endpoint that answered 410 is to get deliveries again, and do what was
        decided."""
        key, item = inbox_of(self._tenant, self._id), inbox.gone_item(self._id, record.why_seq)
        decided = None if self._inbox is None else await inbox.decision(self._store, key, item)
        if decided is not None:
            if decided.again:
                hooked = ev.SurfaceHooked(reason="approved", due=wall_clock())
                await self._store.append(self._lease.key, [event_of(hooked)], expected=record.head)
            return
        if self._inbox is None or item not in self._inbox.pending:
            site = target(record.endpoint.url).site
            title = f"Deliver to webhook endpoint {site} again? It answered 410 Gone"
            await inbox.ask(self._store, key, self._inbox, item, title, site)

    async def _gone(self, record: EndpointRecord) -> None:
        event = event_of(ev.SurfaceUnhooked(why="gone", reason="410"))
        with contextlib.suppress(HeadMoved):
            await self._store.append(
                self._lease.key, [event], expected=record.head, fence=self._lease
            )

    # Deliveries

    async def _send(self, event: Event, row: Row, main: Row) -> WebhookReply:
        assert self._record is not None
        now = wall_clock()
        body = body_of(event, row, main, self._redactor)
        secrets = [secret for secret, until in self._secrets if until is None or now < until]
        sent = headers(secrets, message_id(row.log, event.seq), now // 1000, body)
        reply = await self._sender.post(self._record.endpoint.url, sent, body)
        if reply.ok:
            self._failures = 0
            self._backoff.reset()
        elif reply.status != 410:
            self._failures += 1
            LOGGER.info(
                "webhook endpoint %s failed: %s", self._id, self._redactor.text(reply.problem)
            )
        return reply

    async def _deliver(self, record: EndpointRecord, works: Sequence[LogWork]) -> bool:
        """Deliver to some logs at a time. Returns whether all of them are done or marked as due.
        While the endpoint fails, this ends after the first failure."""
        limit = asyncio.Semaphore(1 if self._failures >= TOLERATED else CONCURRENT)
        stop = False

        async def one(work: LogWork) -> bool:
            nonlocal stop
            async with limit:
                if stop:
                    return False
                found = LogDelivery(self._store, self._tenant, record.endpoint, work, self._send)
                try:
                    result: Result = await found.deliver()
                except StoreUnavailable:
                    raise
                except StoreError as error:  # this log cannot be read; the others can
                    LOGGER.error("cannot read a log for webhooks: %s", _code(error))
                    result = "done"
                stop |= result == "gone"
                stop |= result == "failed" and self._failures >= TOLERATED
                if result == "gone":
                    await self._gone(record)
                    return False
                self._feed.done(work.row)
                return True

        tasks = [asyncio.create_task(one(work)) for work in works]
        try:
            complete = all([await task for task in tasks])
        finally:
            await ended(*tasks)
        if self._failures >= TOLERATED and stop:
            self._pause()
        return complete

    def _pause(self) -> None:
        self._resume = asyncio.get_running_loop().time() + self._backoff.next()

    async def _due(self, record: EndpointRecord) -> bool:
        """Deliver to the logs that are marked as due. Returns whether there are any."""
        due = await self._store.runnable(self._lease.key.tenant, agents=[self._id], limit=RETRIED)
        places = [row for row in await self._store.rows(due) if row is not None]
        works: list[LogWork] = []
        for place in places:
            said = await last(self._store, place)
            if not isinstance(said, (ev.SurfaceDelivered, ev.SurfaceFailed)):
                continue
            key = Key(self._tenant, said.session or "", said.thread or "")
            row, main = await self._store.rows([key, Key(key.tenant, key.session, MAIN)])
            if row is None or main is None or row.log != place.thread:  # it was deleted
                with contextlib.suppress(HeadMoved):
                    await self._store.delete(place.key, expected=place.head)
                continue
            works.append(LogWork(row=row, main=main, place=place))
        await self._deliver(record, works)
        return bool(works)

    async def _new(self, record: EndpointRecord) -> bool:
        """Deliver to the logs with news, and move the cursor. Returns whether there were any."""
        first, newest, found = record.endpoint.since, self._looked, False
        async with contextlib.aclosing(self._feed.active(self._looked, first)) as pages:
            async for changed, active in pages:
                works = await self._works(changed)
                if not await self._deliver(record, works):
                    return True
                found |= bool(works)
                newest = max(newest, active)
        others = await self._works(await self._feed.others(first))
        complete = await self._deliver(record, others)
        if complete:
            self._looked = min(newest, wall_clock() // 1000)
        if self._looked >= self._saved + KEPT:
            await self._keep_cursor()
        return found or bool(others)

    async def _works(self, changed: Iterable[Changed]) -> list[LogWork]:
        """Return the work for changed logs, but for those that are marked as due."""
        some = [*changed]
        keys = [Key(self._lease.key.tenant, self._id, one.row.log) for one in some]
        works: list[LogWork] = []
        for one, place in zip(some, await self._store.rows(keys) if keys else [], strict=True):
            if place is not None and place.due is not None:
                self._feed.done(one.row)
            elif (position(place) or 0) < one.row.head:
                works.append(LogWork(row=one.row, main=one.main, place=place))
        return works

    async def _keep_cursor(self, seq: int | None = None) -> None:
        """Store the cursor, and with `seq` that a replay is done."""
        if self._looked == self._saved and seq is None:
            return
        done = (position(self._cursor) or 0) if seq is None else seq
        event = event_of(ev.SurfaceDelivered(looked=self._looked, seq=done))
        key = Key(self._lease.key.tenant, self._id, CURSOR)
        row = self._cursor
        expected = 0 if row is None else row.head
        with contextlib.suppress(HeadMoved):  # another process took over
            await self._store.append(key, [event], expected=expected, create=row is None)
            self._saved = self._looked
            self._cursor = await self._store.row(key)

    async def _replay(self, record: EndpointRecord) -> None:
        """Move the positions back, in all logs with events since the start of a replay."""
        since = record.replay or 0
        async with contextlib.aclosing(self._feed.everything(since)) as pages:
            async for rows in pages:
                for row in rows:
                    start = await first_event(self._store, row, since)
                    endpoint = record.endpoint
                    await move_back(self._store, self._tenant, endpoint, row, start, None)
        await self._keep_cursor(record.replay_seq)

    # Dead letters

    async def _decided(self, record: EndpointRecord) -> None:
        """Ask an operator about dead letters, and do what was decided."""
        if not self._letters.open or (self._inbox is not None and self._open_item()):
            return
        key = inbox_of(self._tenant, self._id)
        decided = None if self._inbox is None else await inbox.latest(self._store, key, self._id)
        meant = [
            letter
            for letter in self._letters.open.values()
            if decided is not None and letter.at <= decided.at
        ]
        if decided is None or not meant:
            await self._ask(record)
            return
        for letter in meant:
            await self._again(letter, again=decided.again)
            if decided.again and self._failures >= TOLERATED:
                self._pause()
                return

    def _open_item(self) -> bool:
        prefix = inbox.dead_item(self._id, 0)[:-1]
        return self._inbox is not None and any(
            one.startswith(prefix) for one in self._inbox.pending
        )

    async def _ask(self, record: EndpointRecord) -> None:
        letters = [*self._letters.open.values()]
        failed, site = letters[0].failed, target(record.endpoint.url).site
        more = f" and {len(letters) - 1} more" if len(letters) > 1 else ""
        title = (
            f"Deliver to webhook endpoint {site} again? Event {failed.seq} of session "
            f"{failed.session}{more} could not be delivered ({failed.error})"
        )
        item = inbox.dead_item(self._id, self._letters.head)
        key = inbox_of(self._tenant, self._id)
        await inbox.ask(self._store, key, self._inbox, item, title, site)

    async def _again(self, letter: DeadLetter, *, again: bool) -> None:
        """Deliver a dead letter again, or drop it. If that fails, it stays a dead letter, and the
        operator is asked again."""
        failed, key = letter.failed, Key(self._lease.key.tenant, self._id, DEAD)
        about = Key(self._tenant, failed.session or "", failed.thread or "")
        row, main = await self._store.rows([about, Key(about.tenant, about.session, MAIN)])
        there = again and row is not None and row.log == failed.log
        if there and row is not None and main is not None:
            read = self._store.read(about, after=failed.seq - 1, before=failed.seq + 1, log=row.log)
            async for event in read:
                reply = await self._send(event, row, main)
                if not reply.ok:
                    error = replace(
                        failed,
                        attempts=failed.attempts + 1,
                        error=reply.problem,
                        status=reply.status,
                    )
                    await bury(self._store, key, error)
                    return
        done = ev.SurfaceDelivered(
            session=failed.session,
            thread=failed.thread,
            log=failed.log,
            seq=failed.seq,
            dismissed=not there,
        )
        await self._store.append(key, [event_of(done)])


def _code(error: BaseException) -> str:
    """Return the name of an error; its text may contain data."""
    return str(getattr(error, "code", type(error).__name__))
