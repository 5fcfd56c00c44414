"""A session's stream as its reader sees it: one, however many connections it takes. Each event
comes once and in order, and the text of a message in flight joins without a gap."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ..cancellation import cancellable
from ..errors import (
    HoldfastError,
    InvalidValue,
    LogReplaced,
    RateLimited,
    ServerError,
    ServerUnavailable,
    SessionNotFound,
)
from ..log.codec import typed
from ..log.events import Event, MessageCompleted, MessageInterrupted
from ..values.delta import Delta
from ..values.stream_items import CaughtUp, Item, Trouble
from ..wire import (
    CAUGHT_UP,
    DELTA,
    END,
    EVENT,
    NOW,
    RESYNC,
    START,
    TROUBLE,
    Caught,
    End,
    Failed,
    Resync,
    error_of,
    read_cursor,
)
from .transport import LATER, PASSING, Query, Transport, Waits, decoded

FeedItem: TypeAlias = Item | End
LASTED = 5.0  # seconds: a connection that was there so long was a good one
SAID = ("message.completed", "message.interrupted")
FLYING = 64  # messages in flight, and messages that were, which are remembered
AGAIN = ("shutdown", "closed")  # the server had to stop; the stream goes on elsewhere


class ServerSentEvent(Struct, frozen=True):
    """One server-sent event; `id` is a cursor, where it has one."""

    name: str
    data: bytes
    id: str = ""


async def frames(lines: AsyncIterator[bytes]) -> AsyncGenerator[ServerSentEvent, None]:
    """Server-sent events; comments and what is cut short are passed over."""
    name, id, data = "message", "", list[bytes]()
    async for line in lines:
        if not line:
            if data:
                yield ServerSentEvent(name, b"\n".join(data), id)
            name, id, data = "message", "", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode(errors="replace")
        elif field == b"id":
            id = value.decode(errors="replace")
        elif field == b"data":
            data.append(value)


class Joined:
    """What has arrived, so that nothing is given twice: the last event, and how much of each
    message in flight. What was said while nobody listened is given before the message itself:
    of messages that were heard in part, or with `whole` of all."""

    def __init__(self, seq: int, *, whole: bool = False) -> None:
        self.seq, self._whole = seq, whole
        self._caught = False
        self._lengths: dict[str, int] = {}
        self._over: deque[str] = deque(maxlen=FLYING)

    def event(self, event: Event) -> list[Item]:
        if event.seq <= self.seq:
            return []
        self.seq = event.seq
        missed = self._missed(event) if event.kind in SAID else []
        self._lengths.pop(event.id, None)
        return [*missed, event]

    def _missed(self, event: Event) -> list[Delta]:
        self._over.append(event.id)
        whole = self._whole and event.kind == "message.completed"
        if not whole and event.id not in self._lengths:
            return []
        payload = typed(event)
        text = payload.text if isinstance(payload, (MessageCompleted, MessageInterrupted)) else ""
        known = self._lengths.get(event.id, 0)
        return [Delta(event.id, known, text[known:])] if len(text) > known else []

    def caught_up(self, caught: Caught) -> list[Item]:
        """The mark, the first time."""
        first, self._caught = not self._caught, True
        self.seq = max(self.seq, caught.head)
        return [CaughtUp(caught.log, caught.head)] if first else []

    def delta(self, delta: Delta) -> list[Item]:
        """What is new of it. Raises where something is missing before it."""
        if delta.message in self._over:
            return []  # of a driver that was not told yet
        if delta.thought:
            return [delta]
        known = self._lengths.get(delta.message, 0)
        if delta.offset > known:
            raise ServerUnavailable(problem="the stream lost some text")
        text = delta.text[known - delta.offset :]
        if not text:
            return []
        self._lengths[delta.message] = known + len(text)
        if len(self._lengths) > FLYING:  # what drivers left unsaid when they died
            del self._lengths[next(iter(self._lengths))]
        return [Delta(delta.message, known, text)]


class Feed:
    """The stream of one thread of a session. `cursor` is where it stands: what follows it has
    not been given yet. Closing it stops nothing but the reading."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        where: tuple[str, str],
        query: Query,
        after: str | int | None,
        *,
        whole: bool = False,
    ) -> None:
        self._transport, self._path, self._where, self._query = transport, path, where, query
        self.cursor = START if after is None else str(after)
        first = 0 if self.cursor == NOW else read_cursor(self.cursor)[1]
        self._joined = Joined(first, whole=whole)

    async def parts(self) -> AsyncGenerator[FeedItem, None]:
        """Everything to its end. The last part is an `End`, unless an error is raised:
        `LogReplaced` where the cursor is not of this log any more, `InvalidValue` where it is a
        number past the end, `SessionNotFound` and `SessionMoved` where the session goes,
        `ServerUnavailable` where no server answers."""
        waits = Waits(self._transport.total)
        while True:
            begun, least = time.monotonic(), 0.0
            try:
                with cancellable():
                    async with contextlib.aclosing(self._connection()) as found:
                        async for part in found:
                            waits.again()
                            yield part
                            if isinstance(part, End):
                                return
                problem: HoldfastError = ServerUnavailable(problem="the stream was cut")
            except HoldfastError as error:
                if not passes(error):
                    raise
                problem = error
                least = error.retry_after if isinstance(error, RateLimited) else 0.0
            if time.monotonic() - begun > LASTED:
                waits.again()
            await waits.wait(problem, least)
            self._transport.next()

    async def _connection(self) -> AsyncGenerator[FeedItem, None]:
        """What comes over one connection, without what came before. It ends without an `End`
        where the stream is to go on over another."""
        query = {**self._query, "after": self.cursor}
        async with self._transport.lines(self._path, query) as lines:
            async for frame in frames(lines):
                if frame.name == END:
                    end = decoded(frame.data, End)
                    self._check(end)
                    if end.reason not in AGAIN:
                        yield end
                    return
                items = self._items(frame)
                for item in items[:-1]:
                    yield item
                self.cursor = frame.id or self.cursor
                for item in items[-1:]:
                    yield item

    def _items(self, frame: ServerSentEvent) -> list[Item]:
        if frame.name == EVENT:
            return self._joined.event(decoded(frame.data, Event))
        if frame.name == DELTA:
            return self._joined.delta(decoded(frame.data, Delta))
        if frame.name == CAUGHT_UP:
            return self._joined.caught_up(decoded(frame.data, Caught))
        if frame.name == TROUBLE:
            return [decoded(frame.data, Trouble)]
        if frame.name == RESYNC:
            raise self._lost(decoded(frame.data, Resync))
        return []  # of a newer server

    def _lost(self, found: Resync) -> HoldfastError:
        """What is wrong with the cursor: a number past the end, or a place in another log."""
        log, seq = (None, 0) if self.cursor == NOW else read_cursor(self.cursor)
        if log is None and seq > found.head:
            problem = f"is {seq}, past the end: event {found.head} is the last"
            remedy = f"give a number from 0 to {found.head}, or leave it out to read from now on"
            return InvalidValue(field="after", problem=problem, remedy=remedy, limit=found.head)
        session, thread = self._where
        known = log or self.cursor
        return LogReplaced(tenant="", session=session, thread=thread, known=known, log=found.log)

    def _check(self, end: End) -> None:
        """Raise what stopped the stream, unless it can go on elsewhere."""
        if end.error is not None:
            error = error_of(msgspec.json.encode(Failed(end.error)), 500)
            if not passes(error):
                raise error
        if end.reason == "deleted":
            session, thread = self._where
            raise SessionNotFound(tenant="", session=session, thread=thread)


def passes(error: HoldfastError) -> bool:
    """Whether a stream that ended so is worth another connection."""
    if isinstance(error, ServerError):
        return isinstance(error, ServerUnavailable) or error.status in PASSING
    return error.code in LATER
