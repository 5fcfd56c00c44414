"""Limits the unsent response data in memory, for each principal and for the process. An event with
large data is encoded once, and all its readers share the bytes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from ...cancellation import forget
from ...errors import RateLimited
from ..auth.limits import ServerLimits

PIECE = 64 << 10  # bytes that are passed to a connection at once, about the size of its buffer
MAKING = 8  # large responses of unknown size that are made at a time
PRESSED = 5.0  # seconds that a client may read nothing while others wait for buffer space
ALL = ""  # the name of the counters of the whole process
NOBODY = "\n"  # the name for requests without a caller

EventRef: TypeAlias = tuple[str, int]  # an event: the incarnation of its log, and its number


class SharedFrame:
    """The encoded bytes of an event, shared by all its readers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.readers: Counter[str] = Counter()
        self.loading: asyncio.Task[bytes] | None = None


class Outbox:
    """Limits the number of unsent bytes in memory. A large response needs free buffer space, unless
    no other large response is in memory; so a response that exceeds every limit can be sent
    alone."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.limits = limits or ServerLimits()
        self._used: Counter[str] = Counter()
        self._large: Counter[str] = Counter()  # the number of large responses
        self._frames: dict[EventRef, SharedFrame] = {}
        self._waiting: Counter[str] = Counter()  # readers that wait for buffer space, by principal
        self.making = asyncio.Semaphore(MAKING)  # for responses of unknown size
        self._refused: dict[str, float] = {}  # when to forget that a name lacked buffer space
        self._freed: set[asyncio.Future[None]] = set()

    @property
    def used(self) -> int:
        """The number of unsent bytes."""
        return self._used[ALL]

    def patience(self, name: str = NOBODY) -> float:
        """Return how many seconds a client of this principal may read nothing. The time is shorter
        while other clients wait for buffer space."""
        stall = self.limits.stall_seconds
        return min(stall, PRESSED) if self._pressed(name) or self._pressed(ALL) else stall

    def _pressed(self, name: str) -> bool:
        return self._waiting[name] > 0 or time.monotonic() < self._refused.get(name, 0.0)

    # Small data is only counted: it slows down its own reader

    def add(self, name: str, size: int) -> None:
        _add(self._used, name, size)
        _add(self._used, ALL, size)

    def drop(self, name: str, size: int) -> None:
        _add(self._used, name, -size)
        _add(self._used, ALL, -size)

    def full(self, name: str) -> bool:
        """Return whether the buffers of the principal or of the process are full."""
        return any(self._used[each] >= self._limit(each) for each in (name, ALL))

    # Large data needs free buffer space

    def begin(self, name: str, size: int, *, must: bool) -> None:
        """Reserve buffer space for a large response, until `finish` is called. Raises `RateLimited`
        if there is not enough. With `must`, the response is always accepted, because it cannot be
        requested again."""
        if not must and (short := self._short(name, size)) is not None:
            self._refuse(short)
            raise RateLimited(
                what="bytes of unsent responses", limit=self._limit(short), retry_after=1.0
            )
        for each in (name, ALL):
            self._hold(each, size)

    def finish(self, name: str, size: int) -> None:
        for each in (name, ALL):
            self._let_go(each, size)
        self._tell()

    def join(self, name: str, place: EventRef, size: int) -> bool:
        """Register a reader of a large event, until `leave` is called. Returns False if there is
        not enough buffer space."""
        frame = self._frames.get(place)
        new = [each for each in (name, ALL) if frame is None or not frame.readers[each]]
        if self._short_of(new, size) is not None:
            return False
        if frame is None:
            frame = self._frames[place] = SharedFrame(size)
        for each in new:
            self._hold(each, frame.size)
        frame.readers.update((name, ALL))
        return True

    def leave(self, name: str, place: EventRef) -> None:
        frame = self._frames[place]
        frame.readers.subtract((name, ALL))
        for each in (name, ALL):
            if not frame.readers[each]:
                self._let_go(each, frame.size)
        if not frame.readers[ALL]:
            del self._frames[place]
            if frame.loading is not None:
                frame.loading.cancel()
        self._tell()

    async def frame(self, place: EventRef, load: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """Return the encoded bytes of an event for a reader that called `join`. The first reader
        loads them."""
        frame = self._frames[place]
        if frame.loading is None or (frame.loading.done() and _failed(frame.loading)):
            frame.loading = asyncio.create_task(load())
            frame.loading.add_done_callback(forget)  # all readers may be cancelled
        return await asyncio.shield(frame.loading)

    async def freed(self, name: str, size: int, patience: float) -> bool:
        """Wait until another large response was sent or dropped. Returns False if this takes longer
        than `patience` seconds."""
        short = self._short(name, size) or ALL
        future = asyncio.get_running_loop().create_future()
        self._freed.add(future)
        self._waiting[short] += 1
        try:
            await asyncio.wait([future], timeout=patience)
            return future.done()
        finally:
            _add(self._waiting, short, -1)
            self._freed.discard(future)

    def _refuse(self, short: str) -> None:
        """Record that a response was rejected for lack of buffer space. For some seconds, clients
        that do not read are then disconnected earlier, because the rejected client will try
        again."""
        now = time.monotonic()
        self._refused = {name: until for name, until in self._refused.items() if until > now}
        self._refused[short] = now + 2 * PRESSED

    def _short(self, name: str, size: int) -> str | None:
        """Return which limit a large response would exceed: the name of the principal, or `ALL` for
        the process. Returns None if there is enough space."""
        return self._short_of((name, ALL), size)

    def _short_of(self, names: Iterable[str], size: int) -> str | None:
        for each in names:
            if self._large[each] and self._used[each] + size > self._limit(each):
                return each
        return None

    def _limit(self, name: str) -> int:
        return self.limits.process_bytes if name == ALL else self.limits.principal_bytes

    def _hold(self, name: str, size: int) -> None:
        _add(self._large, name, 1)
        _add(self._used, name, size)

    def _let_go(self, name: str, size: int) -> None:
        _add(self._large, name, -1)
        _add(self._used, name, -size)

    def _tell(self) -> None:
        for future in self._freed:
            if not future.done():
                future.set_result(None)


def _failed(task: asyncio.Task[bytes]) -> bool:
    return task.cancelled() or task.exception() is not None


def _add(counts: Counter[str], name: str, more: int) -> None:
    """Add to a counter, and remove the counter when it is zero."""
    counts[name] += more
    if not counts[name]:
        del counts[name]
