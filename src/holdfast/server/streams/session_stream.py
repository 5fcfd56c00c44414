"""Reads a session as a stream of items for one reader: past events, a `CaughtUp` marker, live
events, and an end.

All events come from the session's log through `Live`. No state is kept between connections, so a
reader can resume a stream at any replica. The module `backpressure` sends the items.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import Literal, TypeAlias

from msgspec import Struct

from ...backoff import Backoff
from ...cancellation import cancellable, ended
from ...errors import (
    HarnessClosed,
    HoldfastError,
    InvalidValue,
    LogReplaced,
    SessionMoved,
    SessionNotFound,
    StoreError,
    UnknownAgent,
)
from ...harness import Live, Session, core_of
from ...log.catalog import Row
from ...log.events import Event, Scope
from ...values.delta import Delta
from ...values.stream_items import CaughtUp, Item, Trouble, is_stub
from ...wire import NOW, START, End, Failure, Resync, cursor, failed, read_cursor, status_of
from ..placement.removals import Removals
from .stream_until import MessageAnswered, SessionIdle, StreamGoal

FAILED = "the store failed: see the server's log"  # the only message that clients see
SAID = ("message.completed", "message.interrupted")
FLYING = 64  # finished messages that are remembered
FIRST, LONGEST = 0.05, 2.0  # seconds before reading again after a failure, doubled each time

Part: TypeAlias = Item | Resync | End


class StreamRequest(Struct, frozen=True, kw_only=True):
    """What a reader requests: events after a cursor (by default from the beginning, or from `now`),
    until the session is idle or one message is answered, with or without the text of unfinished
    messages."""

    after: str | None = None
    until: Literal["idle"] | None = None
    input: int | None = None
    deltas: bool = True


class UnservedSession:
    """A thread of a session whose agent this server does not serve: it can be read, but not run.
    `unknown` is the error for requests that need the agent."""

    def __init__(self, live: Live, row: Row, unknown: UnknownAgent) -> None:
        self.live, self.row, self.unknown = live, row, unknown


Readable: TypeAlias = Session | UnservedSession


def live_of(session: Readable) -> Live:
    """Return the live log of a session."""
    return session.live if isinstance(session, UnservedSession) else core_of(session).live


async def begin(
    session: Readable, wish: StreamRequest, removals: Removals | None = None
) -> SessionReader:
    """Create the reader for a request. Raises `InvalidValue`, and `UnknownAgent` if the request
    needs an agent that this server does not serve."""
    live = live_of(session)
    after, goal = await place(live, wish.after), await _goal(session, wish)
    return SessionReader(live, after, goal, deltas=wish.deltas, removals=removals)


async def place(live: Live, after: str | None) -> int | Resync:
    """Return the event number to read after, or a `Resync` if the cursor does not belong to this
    log."""
    row = await live.store.row(live.key)
    log, head = live.log, (live.state if row is None else await live.reach(row.head)).head
    if after == NOW:
        return head
    try:
        known, seq = read_cursor(after or START)
    except InvalidValue:
        return _resync(log, head, "`after` is not a cursor")
    if known not in (None, log):
        return _resync(log, head, "the cursor belongs to another log")
    return seq if seq <= head else _resync(log, head, "the cursor is past the end of the log")


def _resync(log: str, head: int, reason: str) -> Resync:
    return Resync(log=log, head=head, cursor=cursor(log, head), reason=reason)


def failure(error: HoldfastError) -> Failure:
    if isinstance(error, StoreError) and status_of(error) >= 500:
        error = type(error)(**{**error.fields, "problem": FAILED})
    return failed(error).error


async def _goal(session: Readable, wish: StreamRequest) -> StreamGoal:
    if isinstance(session, UnservedSession):
        if wish.input is None and wish.until is None:
            return StreamGoal()
        raise session.unknown
    if wish.input is None:
        return SessionIdle(session) if wish.until == "idle" else StreamGoal()
    event = await live_of(session).event(wish.input) if wish.input > 0 else None
    if event is None or event.kind != "message.received":
        raise InvalidValue(
            field="input",
            problem=f"event {wish.input} is not a message",
            remedy="pass the `seq` of the response that accepted the message",
        )
    return MessageAnswered(session, wish.input)


async def _replaced(live: Live) -> list[Part]:
    row = await live.store.row(live.key)
    if row is None:
        return [End(reason="deleted")]
    return [
        _resync(row.log, row.head, "the log was deleted and created again"),
        End(reason="resync"),
    ]


class SessionReader:
    """Reads one log for one reader, from the event after number `after` until its goal is
    reached."""

    def __init__(
        self,
        live: Live,
        after: int | Resync,
        goal: StreamGoal,
        *,
        deltas: bool = True,
        removals: Removals | None = None,
    ) -> None:
        self._removals = removals or Removals()
        self.log = live.log
        self.after = 0 if isinstance(after, Resync) else after
        self._live, self._goal, self._deltas = live, goal, deltas
        self._lost = after if isinstance(after, Resync) else None
        self._read = self.after if goal.first is None else min(self.after, goal.first)
        self._told = False  # whether `CaughtUp` was sent
        self._over: deque[str] = deque(maxlen=FLYING)

    async def parts(self) -> AsyncGenerator[Part, None]:
        """Yield the events after the cursor, once and in order, then `CaughtUp`, then new events.
        The last item is an `End`. If the cursor belongs to another log, yield a `Resync`. If the
        store fails, yield a `Trouble`; no event is lost. Events with large data are stubs
        (`is_stub`); `event` loads their data."""
        if self._lost is not None:
            yield self._lost
            yield End(reason="resync")
            return
        backoff = Backoff(FIRST, LONGEST)
        while True:
            try:
                with cancellable():
                    async with contextlib.aclosing(self._until_it_fails()) as found:
                        async for part in found:
                            backoff.reset()
                            if self._deltas or not isinstance(part, Delta):
                                yield part
                return
            except HoldfastError as error:
                told = await self.failed(error)
                for part in told:
                    yield part
                if isinstance(told[-1], End):
                    return
            await backoff.wait()

    async def event(self, seq: int) -> Event:
        """Read the event with this number, with all its data."""
        if (event := await self._live.event(seq)) is None:
            key = self._live.key
            raise SessionNotFound(tenant=key.tenant, session=key.session, thread=key.thread)
        return event

    async def failed(self, error: HoldfastError) -> list[Part]:
        """Return the items that report a read error: a `Trouble` if the read can be retried,
        otherwise an `End`."""
        if isinstance(error, SessionNotFound):
            return [End(reason="deleted")]
        if isinstance(error, LogReplaced):
            return await _replaced(self._live)
        if not error.retryable:
            return [End(reason="closed", error=failure(error))]
        return [Trouble(error.code, str(error))]

    async def _until_it_fails(self) -> AsyncGenerator[Part, None]:
        goal, listener = self._goal, self._live.listen(self._read, whole=False)
        asked = None
        if goal.session is not None:
            asked = asyncio.create_task(self._until_asked(goal.session))
            asked.add_done_callback(lambda _: listener.end())
        try:
            async with contextlib.aclosing(aiter(listener)) as items:
                async for item in items:
                    if self._shown(item, await self._whole(item)):
                        yield item
                    if isinstance(item, Delta):
                        continue
                    if (end := await self._end(item)) is not None:
                        yield end
                        return
            if asked is not None and asked.done():
                asked.result()
                yield await goal.end("waiting")
                return
            yield await self._closed()
        finally:
            listener.close()
            if asked is not None:
                await ended(asked)

    async def _until_asked(self, session: Session) -> None:
        """Wait until a sub-agent needs user input, and note this in the goal."""
        await session.subagents.until_asked()
        self._goal.asked = True

    async def _closed(self) -> End:
        live = self._live
        why = live.failure
        if isinstance(why, HarnessClosed):
            await self._removals.over(Scope(live.key.tenant, live.key.session))
            row = await live.store.row(live.key)
            if row is None or row.log != live.log:
                return End(reason="deleted")
        return End(reason="closed", error=None if why is None else failure(why))

    async def _whole(self, item: Item) -> Item:
        """Load the data of a stub event if the stream's goal needs it. The data of received
        messages is never needed."""
        looks = self._goal.reads and isinstance(item, Event) and item.kind != "message.received"
        if looks and isinstance(item, Event) and is_stub(item):
            return await self.event(item.seq)
        return item

    def _shown(self, item: Item, whole: Item) -> bool:
        wanted = self._goal.see(whole)
        if isinstance(item, Event):
            self._read = item.seq
            if item.kind in SAID:
                self._over.append(item.id)
            return wanted and item.seq > self.after
        if isinstance(item, Delta) and item.message in self._over:
            return False  # from a driver that lags behind
        if isinstance(item, CaughtUp):
            first, self._told = not self._told, True
            return first
        return wanted

    async def _end(self, item: Item) -> End | None:
        """Return the end of the stream if the goal is reached or no more items can follow."""
        live = self._live
        told = isinstance(item, (Trouble, CaughtUp)) and self._goal.session is not None
        if told and live.stuck is not None:
            return End(reason="closed", error=failure(live.stuck))
        newest = isinstance(item, (Event, CaughtUp)) and self._read >= live.state.head
        if newest and (moved := await self._moved(item)) is not None:
            return End(reason="moved", error=failure(moved))
        reason = self._goal.met(item)
        return None if reason is None else await self._goal.end(reason)

    async def _moved(self, item: Item) -> SessionMoved | None:
        live = self._live
        head = live.state.head
        last = item if isinstance(item, Event) else await live.event(head, whole=False)
        if last is None or last.kind != "session.moved":
            return None
        key, about = live.key, last.json()
        to = str(about.get("to", "")) if isinstance(about, dict) else ""
        return SessionMoved(tenant=key.tenant, session=key.session, thread=key.thread, to=to)
