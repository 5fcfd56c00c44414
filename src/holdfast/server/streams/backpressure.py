"""Backpressure for streams: data is sent in batches, and only a little is buffered for each reader.
Events that a slow reader has not read yet stay in the log. Large data of an event is read when it
is sent, and its bytes are shared by all readers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ...backoff import Backoff
from ...cancellation import cancellable, ended
from ...errors import HoldfastError, StoreError, StoreUnavailable, Unauthorized
from ...log.events import Event
from ...values.delta import Delta
from ...values.stream_items import CaughtUp, Trouble, is_stub, item_size, stub_size
from ...wire import CAUGHT_UP, DELTA, END, EVENT, RESYNC, TROUBLE, Caught, End, Resync, cursor
from ..placement.store_names import StoreNames
from .outbox import NOBODY, PIECE, Outbox
from .session_stream import FAILED, FIRST, LONGEST, Part, SessionReader, failure

HIDDEN = (
    StoreError.code,
    StoreUnavailable.code,
)  # their messages may contain the location of a store
HEARTBEAT = 10.0  # seconds without data, at most
PACE = 0.02  # seconds between two batches for one reader, at least
SHARE, SLOWEST = 0.00016, 0.08  # seconds between batches, for each open stream, and the maximum
TEXT = 16 << 10  # characters of unfinished text in one server-sent event
LOOK = 2.0  # seconds between two checks of a reader's credentials
BEGIN = b"retry: 1000\n\n"
BEAT = b":\n\n"
SHUTDOWN = End(reason="shutdown")
CLOSED = End(reason="closed")
GONE = ("deleted", "resync")  # end reasons after which a cursor is not valid
NAMES = {Event: EVENT, Delta: DELTA, Trouble: TROUBLE, Caught: CAUGHT_UP, Resync: RESYNC, End: END}


class Translation(Protocol):
    """Translates the items of one stream to the server-sent events of another protocol."""

    def frames(self, part: Part, place: str) -> Iterable[bytes]:
        """Return the frames for the next item; `place` is the cursor after it."""


class StreamWriter:
    """Sends one stream to its reader. Events that the reader has not read yet stay in the log. The
    buffer space in `outbox` is reserved for the principal `name`."""

    def __init__(
        self,
        reading: SessionReader,
        *,
        heartbeat: float = HEARTBEAT,
        pace: Callable[[], float] = lambda: PACE,
        naming: StoreNames | None = None,
        outbox: Outbox | None = None,
        name: str = NOBODY,
        translation: Translation | None = None,
    ) -> None:
        self._translation = translation
        self._naming = naming or StoreNames()
        self._outbox, self._name = outbox or Outbox(), name
        self._reading, self._parts = reading, reading.parts()
        self._log, self._shown = reading.log, reading.after
        self._heartbeat, self._pace = heartbeat, pace
        self._waiting: list[Part] = []
        self._size = 0
        self._next = 0.0  # when the next batch may be sent
        self._quiet = False  # nothing was sent since the last check
        self._timer: asyncio.TimerHandle | None = None
        self._some, self._room = asyncio.Event(), asyncio.Event()
        self._over: End | None = None
        self._cut = False  # ended by `end`: large events are no longer sent
        self._last: list[Part] = []  # sent in place of an event that cannot be read
        self._pump: asyncio.Task[None] | None = None

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the stream as bytes, to its end. The caller closes it when the reader has
        disconnected."""
        self._pump = asyncio.create_task(self._fill(), name="stream")
        self._watch()
        size = 0  # of the batch that is being sent
        try:
            yield BEGIN
            while not (self._over is not None and not self._waiting):
                await self._some.wait()
                size = self._size
                told = self._take()
                async with contextlib.aclosing(self._bytes(told)) as found:
                    async for piece in found:
                        yield piece
                if not told:
                    yield BEAT
                self._outbox.drop(self._name, size)
                size = 0
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await ended(self._pump)
            self._outbox.drop(self._name, size + self._size)

    async def _bytes(self, told: list[Part]) -> AsyncGenerator[bytes, None]:
        """Yield the items as bytes. Small items are combined; a large event is sent alone."""
        small: list[bytes] = []
        held = 0
        for part in merged(told):
            if not isinstance(part, Event) or not is_stub(part):
                for frame in self._frames(part):
                    small.append(frame)
                    held += len(frame)
                    if held >= PIECE:
                        yield b"".join(small)
                        small, held = [], 0
                continue
            if small:
                yield b"".join(small)
                small, held = [], 0
            async with contextlib.aclosing(self._large(part)) as found:
                async for piece in found:
                    yield piece
            if self._shown < part.seq:  # the event was not sent, so only the end may follow
                self._waiting = []
                last = self._last or [self._over or CLOSED]
                small = [frame for one in last for frame in self._frames(one)]
                break
        if small:
            yield b"".join(small)

    async def _large(self, event: Event) -> AsyncGenerator[bytes, None]:
        """Yield an event with large data, as soon as there is buffer space for it. Yields no event
        if the stream ends first."""
        outbox, size = self._outbox, stub_size(event)
        # A translated event is not shared: its frames depend on what the reader was sent before.
        place = (self._log if self._translation is None else f"{self._log}\n{id(self)}", event.seq)
        backoff = Backoff(FIRST, LONGEST)
        while not self._cut:
            if not outbox.join(self._name, place, size):
                if not await outbox.freed(self._name, size, self._heartbeat):
                    yield BEAT
                continue
            try:
                frame = await outbox.frame(place, lambda: self._encoded(event.seq))
                for start in range(0, len(frame), PIECE):
                    yield frame[start : start + PIECE]
                self._shown = event.seq
                return
            except HoldfastError as error:
                told = await self._reading.failed(error)
            finally:
                outbox.leave(self._name, place)
            if isinstance(told[-1], End):
                self._last, self._over = told, told[-1]
                return
            for part in told:
                yield self._frame(part)
            await backoff.wait()

    async def _encoded(self, seq: int) -> bytes:
        event = self._naming.event(await self._reading.event(seq))
        if self._translation is None:
            return frame(event, self._log, seq)
        return b"".join(self._translation.frames(event, cursor(self._log, seq)))

    def _watch(self) -> None:
        """Send a heartbeat if nothing was sent since the last check, and schedule the next
        check."""
        if self._quiet:
            self._some.set()
        self._quiet = True
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._heartbeat / 2, self._watch)

    def end(self, end: End) -> None:
        """End the stream after the items that are already queued, without sending large events. The
        reader can resume the stream later."""
        self._cut = True
        self._finish(end)

    def _finish(self, end: End) -> None:
        """End the stream after all queued items."""
        if self._over is None:
            self._over = end
            self._waiting.append(end)
            self._some.set()
            self._room.set()

    async def _fill(self) -> None:
        try:
            async with contextlib.aclosing(self._parts) as found:
                async for part in found:
                    if self._over is not None:
                        return
                    if isinstance(part, End):
                        self._finish(part)
                        return
                    self._waiting.append(part)
                    self._size += size(part)
                    self._outbox.add(self._name, size(part))
                    await self._gather()
        except HoldfastError as error:
            self._finish(End(reason="closed", error=failure(error)))
        finally:
            self._finish(CLOSED)

    async def _gather(self) -> None:
        """Release the next batch when it is due; items that arrive before then are added to it.
        Waits while the buffers are full."""
        loop = asyncio.get_running_loop()
        if not self._some.is_set():
            if (early := self._next - loop.time()) > 0:
                await asyncio.sleep(early)
            self._next = loop.time() + self._pace()
            self._some.set()
        most = self._outbox.limits.reader_bytes
        while self._over is None and (self._size >= most or self._outbox.full(self._name)):
            self._room.clear()
            await self._room.wait()

    def _frames(self, part: Part) -> Iterator[bytes]:
        """Convert an item to server-sent events: usually one, but several for a long text of an
        unfinished message."""
        if self._translation is not None:
            part = self._told(part)
            yield from self._translation.frames(part, cursor(self._log, self._shown))
            return
        if not isinstance(part, Delta) or len(part.text) <= TEXT:
            yield self._frame(part)
            return
        for start in range(0, len(part.text), TEXT):
            offset = part.offset + (0 if part.thought else start)
            text = part.text[start : start + TEXT]
            yield self._frame(Delta(part.message, offset, text, part.thought))

    def _frame(self, part: Part) -> bytes:
        return frame(self._told(part), self._log, self._shown)

    def _told(self, part: Part) -> Part:
        """Return an item without locations of stores, and advance the cursor to it."""
        if isinstance(part, Event):
            self._shown = part.seq
            return self._naming.event(part)
        if isinstance(part, End):
            return self._naming.end(part)
        if isinstance(part, CaughtUp):
            self._shown = part.head
        return part

    def _take(self) -> list[Part]:
        taken, self._waiting, self._size = self._waiting, [], 0
        self._quiet = False
        self._some.clear()
        self._room.set()
        return taken


class OpenStreams:
    """All open streams of a server."""

    def __init__(
        self,
        *,
        heartbeat: float = HEARTBEAT,
        pace: float = PACE,
        naming: StoreNames | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self._heartbeat, self._least, self._naming = heartbeat, pace, naming
        self._outbox = outbox or Outbox()
        self._open: set[StreamWriter] = set()
        self.closed = False

    @property
    def count(self) -> int:
        """The number of open streams."""
        return len(self._open)

    def pace(self) -> float:
        """Return the seconds between two batches for one reader. They increase with the number of
        open streams."""
        return max(self._least, min(len(self._open) * SHARE, SLOWEST))

    async def chunks(
        self,
        reading: SessionReader,
        still: Callable[[], Awaitable[bool]] | None = None,
        *,
        name: str = NOBODY,
        translation: Translation | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the stream of a session as server-sent events. `still` is called every few seconds;
        when it returns False, the reader may no longer read the session and the stream ends. Buffer
        space is reserved for the principal `name`. With a `translation`, the events are those of
        another protocol."""
        flow = StreamWriter(
            reading,
            heartbeat=self._heartbeat,
            pace=self.pace,
            naming=self._naming,
            outbox=self._outbox,
            name=name,
            translation=translation,
        )
        self._open.add(flow)
        if self.closed:
            flow.end(SHUTDOWN)
        watching = None if still is None else asyncio.create_task(_watched(flow, still))
        try:
            async with contextlib.aclosing(flow.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._open.discard(flow)
            if watching is not None:
                await ended(watching)

    def close(self) -> None:
        """End all open streams, and any stream that is opened later, because the server is shutting
        down."""
        self.closed = True
        for flow in self._open:
            flow.end(SHUTDOWN)


async def _watched(flow: StreamWriter, still: Callable[[], Awaitable[bool]]) -> None:
    """Check periodically whether the reader may still read the stream, and end the stream if
    not."""
    while True:
        await asyncio.sleep(LOOK)
        with cancellable():
            if not await still():
                break
    flow.end(End(reason="closed", error=failure(Unauthorized())))


def frame(part: Part, log: str, after: int) -> bytes:
    """Encode an item as one server-sent event; `after` is the number of the last event that was
    sent. Only events of the log advance the reader's cursor."""
    place = cursor(log, part.seq if isinstance(part, Event) else after)
    told: Part | Caught = part
    if isinstance(part, CaughtUp):
        told = Caught(log=log, head=part.head, cursor=place)
    elif isinstance(part, Trouble) and part.code in HIDDEN:
        told = Trouble(part.code, FAILED)
    elif isinstance(part, End) and part.reason not in GONE:
        told = replace(part, cursor=place)
    id = f"id: {place}\n" if isinstance(part, (Event, CaughtUp)) else ""
    return b"%bevent: %b\ndata: %b\n\n" % (
        id.encode(),
        NAMES[type(told)].encode(),
        msgspec.json.encode(told),
    )


def merged(found: Iterable[Part]) -> Iterator[Part]:
    """Yield the items, with adjacent deltas merged."""
    pieces: list[str] = []
    first: Delta | None = None
    upto = 0
    for part in found:
        joins = isinstance(part, Delta) and first is not None and _joins(first, part, upto)
        if joins and isinstance(part, Delta):
            pieces.append(part.text)
            upto += len(part.text)
            continue
        if first is not None:
            yield Delta(first.message, first.offset, "".join(pieces), first.thought)
            first = None
        if isinstance(part, Delta):
            first, pieces, upto = part, [part.text], part.offset + len(part.text)
        else:
            yield part
    if first is not None:
        yield Delta(first.message, first.offset, "".join(pieces), first.thought)


def _joins(first: Delta, more: Delta, upto: int) -> bool:
    if (first.message, first.thought) != (more.message, more.thought):
        return False
    return more.thought or more.offset == upto


def size(part: Part) -> int:
    """Return the approximate size of an item in bytes."""
    return item_size(part) if isinstance(part, (Event, Delta)) else 64
