"""The event stream of a session, which reconnects when a connection is lost. Each event is
delivered once and in order, and the text of unfinished messages has no gaps."""

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
LASTED = 5.0  # seconds: a connection that lasted this long resets the back-off
SAID = ("message.completed", "message.interrupted")
FLYING = 64  # unfinished and finished messages that are remembered, each at most
AGAIN = ("shutdown", "closed")  # the server stopped; the stream continues elsewhere


class ServerSentEvent(Struct, frozen=True):
    """One server-sent event; `id` is a cursor, or empty."""

    name: str
    data: bytes
    id: str = ""


async def frames(lines: AsyncIterator[bytes]) -> AsyncGenerator[ServerSentEvent, None]:
    """Parse lines into server-sent events; comments and an incomplete last event are skipped."""
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
    """Joins the items of several connections into one stream without duplicates. If some text of a
    message was missed, it is delivered as a delta before the message's final event: for partially
    received messages only, or if `whole` is set, for every completed message."""

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
        """Return the `CaughtUp` marker on the first call, and an empty list on later calls."""
        first, self._caught = not self._caught, True
        self.seq = max(self.seq, caught.head)
        return [CaughtUp(caught.log, caught.head)] if first else []

    def delta(self, delta: Delta) -> list[Item]:
        """Return the text of a delta that has not been delivered yet. Raises `ServerUnavailable` if
        text before it is missing."""
        if delta.message in self._over:
            return []  # from a driver that does not know yet that the message ended
        if delta.thought:
            return [delta]
        known = self._lengths.get(delta.message, 0)
        if delta.offset > known:
            raise ServerUnavailable(problem="the stream skipped a part of a message's text")
        text = delta.text[known - delta.offset :]
        if not text:
            return []
        self._lengths[delta.message] = known + len(text)
        if len(self._lengths) > FLYING:  # messages that crashed drivers never finished
            del self._lengths[next(iter(self._lengths))]
        return [Delta(delta.message, known, text)]


class Feed:
    """The stream of one thread of a session, over as many connections as needed. `cursor` is the
    position after the last delivered item. Closing the feed does not stop the run."""

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
        """Yield all items. The last item is an `End`, unless an error is raised: `LogReplaced` if
        the cursor belongs to another log, `InvalidValue` if it is a number past the end of the log,
        `SessionNotFound` or `SessionMoved` if the session was deleted or moved, and
        `ServerUnavailable` if no server responds."""
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
                problem: HoldfastError = ServerUnavailable(problem="the stream ended unexpectedly")
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
        """Yield the new items of one connection. If the last item is not an `End`, the caller has
        to reconnect."""
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
        return []  # an event of a newer server

    def _lost(self, found: Resync) -> HoldfastError:
        """Return the error for a cursor that is past the end or belongs to another log."""
        log, seq = (None, 0) if self.cursor == NOW else read_cursor(self.cursor)
        if log is None and seq > found.head:
            problem = f"{seq} is past the end of the log (last event: {found.head})"
            remedy = f"pass a number from 0 to {found.head}, or omit it to read from now on"
            return InvalidValue(field="after", problem=problem, remedy=remedy, limit=found.head)
        session, thread = self._where
        known = log or self.cursor
        return LogReplaced(tenant="", session=session, thread=thread, known=known, log=found.log)

    def _check(self, end: End) -> None:
        """Raise the error that ended the stream, unless reconnecting may help."""
        if end.error is not None:
            error = error_of(msgspec.json.encode(Failed(end.error)), 500)
            if not passes(error):
                raise error
        if end.reason == "deleted":
            session, thread = self._where
            raise SessionNotFound(tenant="", session=session, thread=thread)


def passes(error: HoldfastError) -> bool:
    """Return whether the error is temporary, so that the stream should reconnect."""
    if isinstance(error, ServerError):
        return isinstance(error, ServerUnavailable) or error.status in PASSING
    return error.code in LATER
