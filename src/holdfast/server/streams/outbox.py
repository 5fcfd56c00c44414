"""What waits in memory to be sent, within limits: of each principal, and of the whole process. An
event with large data that several readers are sent is encoded once, and they share the bytes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from ...errors import RateLimited
from ..auth.limits import ServerLimits

PIECE = 64 << 10  # bytes that are handed to a connection at once, which buffers about as many
MAKING = 8  # large answers that are made at a time, before they are counted
PRESSED = 5.0  # seconds that a reader may take nothing while others wait for room
ALL = ""  # the whole process, among the names of principals
NOBODY = "\n"  # who asks for what needs no caller

Place: TypeAlias = tuple[str, int]  # an event: the incarnation of its log, and its number


class Frame:
    """An event on its way, as bytes that all its readers share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.readers: Counter[str] = Counter()
        self.loading: asyncio.Task[bytes] | None = None


class Outbox:
    """The bytes that wait to be sent. What is large is let in only where there is room for it, or
    no other large answer waits: so one that is larger than any limit is sent alone."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.limits = limits or ServerLimits()
        self._used: Counter[str] = Counter()
        self._large: Counter[str] = Counter()  # of these, answers that are large
        self._frames: dict[Place, Frame] = {}
        self._waiting: Counter[str] = Counter()  # readers that wait for room, by who lacks it
        self.making = asyncio.Semaphore(MAKING)  # for answers whose size is not known before
        self._refused: dict[str, float] = {}  # who lacked room, and until when that counts
        self._freed: set[asyncio.Future[None]] = set()

    @property
    def used(self) -> int:
        """How many bytes wait to be sent."""
        return self._used[ALL]

    def patience(self, name: str = NOBODY) -> float:
        """How long a reader of this principal may take nothing: not so long while another waits
        for the room that it may have."""
        stall = self.limits.stall_seconds
        return min(stall, PRESSED) if self._pressed(name) or self._pressed(ALL) else stall

    def _pressed(self, name: str) -> bool:
        return self._waiting[name] > 0 or time.monotonic() < self._refused.get(name, 0.0)

    # What is small: it is counted, and holds up only its own reader

    def add(self, name: str, size: int) -> None:
        _add(self._used, name, size)
        _add(self._used, ALL, size)

    def drop(self, name: str, size: int) -> None:
        _add(self._used, name, -size)
        _add(self._used, ALL, -size)

    def full(self, name: str) -> bool:
        """Whether no more should be queued than has to be."""
        return any(self._used[each] >= self._limit(each) for each in (name, ALL))

    # What is large

    def begin(self, name: str, size: int, *, must: bool) -> None:
        """Hold a large answer until `finish`. `RateLimited` where there is no room for it, unless
        it `must` be given: then it was made already, and cannot be asked for again."""
        if not must and (short := self._short(name, size)) is not None:
            self._refuse(short)
            what = "bytes of answers that wait to be sent"
            raise RateLimited(what=what, limit=self._limit(short), retry_after=1.0)
        for each in (name, ALL):
            self._hold(each, size)

    def finish(self, name: str, size: int) -> None:
        for each in (name, ALL):
            self._let_go(each, size)
        self._tell()

    def join(self, name: str, place: Place, size: int) -> bool:
        """Become a reader of an event, until `leave`; False where there is no room for it now."""
        frame = self._frames.get(place)
        new = [each for each in (name, ALL) if frame is None or not frame.readers[each]]
        if self._short_of(new, size) is not None:
            return False
        if frame is None:
            frame = self._frames[place] = Frame(size)
        for each in new:
            self._hold(each, frame.size)
        frame.readers.update((name, ALL))
        return True

    def leave(self, name: str, place: Place) -> None:
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

    async def frame(self, place: Place, load: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """The bytes of an event, for one that has joined: loaded by the first who asks."""
        frame = self._frames[place]
        if frame.loading is None or (frame.loading.done() and _failed(frame.loading)):
            frame.loading = asyncio.create_task(load())
        return await asyncio.shield(frame.loading)

    async def freed(self, name: str, size: int, patience: float) -> bool:
        """Wait until something large was sent or given up; False where that takes longer than
        so many seconds."""
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
        """Remember that room was lacking: whoever was refused asks again."""
        now = time.monotonic()
        self._refused = {name: until for name, until in self._refused.items() if until > now}
        self._refused[short] = now + 2 * PRESSED

    def _short(self, name: str, size: int) -> str | None:
        """Where there is no room for something large: with the principal, in the process, or in
        neither."""
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
    """Count, and forget names that have nothing any more."""
    counts[name] += more
    if not counts[name]:
        del counts[name]
