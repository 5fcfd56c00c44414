"""How a stream leaves: in pieces, no more often than a reader has use for, and never more than a
little ahead of it. What a slow reader has not taken stays in the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from ..errors import HoldfastError, StoreError, StoreUnavailable, Unauthorized
from ..events import Event
from ..harness.live.log import Delta, Trouble
from ..store import CaughtUp
from ..stores.patience import cancellable, ended
from ..wire import CAUGHT_UP, DELTA, END, EVENT, RESYNC, TROUBLE, Caught, End, Resync, cursor
from .naming import Naming
from .stream import FAILED, Part, Reading, failure

HIDDEN = (StoreError.code, StoreUnavailable.code)  # what these say may name a place
HEARTBEAT = 10.0  # seconds without a word, at most
PACE = 0.02  # seconds between two pieces to one reader, at least
SHARE, SLOWEST = 0.00016, 0.08  # and more, the more readers there are: so much for each, at most …
ROOM = 64 << 10  # characters that may wait for a reader before the log has to keep the rest
LOOK = 2.0  # seconds between two looks whether a reader may still read
BEGIN = b"retry: 1000\n\n"
BEAT = b":\n\n"
SHUTDOWN = End(reason="shutdown")
GONE = ("deleted", "resync")  # a cursor is worth nothing any more
NAMES = {Event: EVENT, Delta: DELTA, Trouble: TROUBLE, Caught: CAUGHT_UP, Resync: RESYNC, End: END}


class Flow:
    """One stream on its way to its reader. What the reader does not take stays in the log."""

    def __init__(
        self,
        reading: Reading,
        *,
        heartbeat: float = HEARTBEAT,
        pace: Callable[[], float] = lambda: PACE,
        naming: Naming | None = None,
    ) -> None:
        self._naming = naming or Naming()
        self._parts = reading.parts()
        self._log, self._shown = reading.log, reading.after
        self._heartbeat, self._pace = heartbeat, pace
        self._waiting: list[Part] = []
        self._size = 0
        self._next = 0.0  # when the next piece may go
        self._quiet = False  # since the last look
        self._timer: asyncio.TimerHandle | None = None
        self._some, self._room = asyncio.Event(), asyncio.Event()
        self._over: End | None = None
        self._pump: asyncio.Task[None] | None = None

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The stream as bytes, to its end. Close it when the reader has gone."""
        self._pump = asyncio.create_task(self._fill(), name="stream")
        self._watch()
        try:
            yield BEGIN
            while not (self._over is not None and not self._waiting):
                await self._some.wait()
                told = self._take()
                yield b"".join(map(self._frame, merged(told))) if told else BEAT
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await ended(self._pump)

    def _watch(self) -> None:
        """Break the silence where nothing was said since the last look; look again."""
        if self._quiet:
            self._some.set()
        self._quiet = True
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._heartbeat / 2, self._watch)

    def end(self, end: End) -> None:
        """Say what is left to say, and this; then it is over."""
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
                        self.end(part)
                        return
                    self._waiting.append(part)
                    self._size += size(part)
                    await self._gather()
        except HoldfastError as error:
            self.end(End(reason="closed", error=failure(error)))
        finally:
            self.end(End(reason="closed"))

    async def _gather(self) -> None:
        """Let the next piece go when it is time: what comes before then goes with it."""
        loop = asyncio.get_running_loop()
        if not self._some.is_set():
            if (early := self._next - loop.time()) > 0:
                await asyncio.sleep(early)
            self._next = loop.time() + self._pace()
            self._some.set()
        while self._size >= ROOM and self._over is None:
            self._room.clear()
            await self._room.wait()

    def _frame(self, part: Part) -> bytes:
        if isinstance(part, Event):
            self._shown = part.seq
            part = self._naming.event(part)
        elif isinstance(part, End):
            part = self._naming.end(part)
        elif isinstance(part, CaughtUp):
            self._shown = part.head
        return frame(part, self._log, self._shown)

    def _take(self) -> list[Part]:
        taken, self._waiting, self._size = self._waiting, [], 0
        self._quiet = False
        self._some.clear()
        self._room.set()
        return taken


class Streams:
    """The streams that a server has open."""

    def __init__(
        self, *, heartbeat: float = HEARTBEAT, pace: float = PACE, naming: Naming | None = None
    ) -> None:
        self._heartbeat, self._least, self._naming = heartbeat, pace, naming
        self._open: set[Flow] = set()
        self.closed = False

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._open)

    def pace(self) -> float:
        """How long to wait between two pieces to one reader, with so many of them."""
        return max(self._least, min(len(self._open) * SHARE, SLOWEST))

    async def chunks(
        self, reading: Reading, still: Callable[[], Awaitable[bool]] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """What is read, as server-sent events, for as long as its reader may read: `still` is
        asked every few seconds."""
        flow = Flow(reading, heartbeat=self._heartbeat, pace=self.pace, naming=self._naming)
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
        """End all of them, and those that are still to come: the server goes away."""
        self.closed = True
        for flow in self._open:
            flow.end(SHUTDOWN)


async def _watched(flow: Flow, still: Callable[[], Awaitable[bool]]) -> None:
    """End a stream whose reader may not read it any more."""
    while True:
        await asyncio.sleep(LOOK)
        with cancellable():
            if not await still():
                break
    flow.end(End(reason="closed", error=failure(Unauthorized())))


def frame(part: Part, log: str, after: int) -> bytes:
    """A part as one server-sent event, where `after` is the last number that was shown. Only
    what is in the log moves a reader's cursor."""
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
    """The same parts, with deltas that join in one."""
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
    """About how much room a part takes."""
    if isinstance(part, Event):
        return 256 + len(part.data)
    return 64 + (len(part.text) if isinstance(part, Delta) else 0)
