"""A circuit breaker for stores: each call has a deadline, and a store that has just failed is not
called again immediately."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from ...cancellation import forget
from ...errors import HoldfastError, LogDamaged, MissingExtra, StoreError, StoreUnavailable

T = TypeVar("T")
TIMEOUT = 5.0  # seconds that a store has to respond
BRIEFLY = 1.0  # seconds to respond after a failure; doubled after each further failure
GAP = 60.0  # seconds without a call after which a failure counts as the first
AGAIN = 2.0  # seconds after a failure during which the store is not called


class _Failed(NamedTuple):
    since: float
    last: float
    error: HoldfastError
    tries: int


class CircuitBreaker:
    """Tracks which stores of a server are unavailable, and since when. Each store has `seconds` to
    respond."""

    def __init__(
        self, seconds: float = TIMEOUT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._clock = seconds, clock
        self._away: dict[str, _Failed] = {}
        self._left: set[asyncio.Task[Any]] = set()

    async def ask(self, kind: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`. If the store cannot be opened or does not respond, mark it
        as unavailable and raise a `StoreError` or `MissingExtra`."""
        known = self._away.get(kind)
        if known is not None and self._clock() < known.last + AGAIN:
            raise StoreUnavailable(
                problem=f"the {kind} store failed a moment ago: try again in a few seconds"
            ) from known.error
        error: HoldfastError
        try:
            found = await self.within(self._patience(known), work)
        except TimeoutError as late:
            error = StoreUnavailable(problem=f"the {kind} store does not respond")
            error.__cause__ = late
        except LogDamaged:
            raise
        except (StoreError, MissingExtra) as failed:
            error = failed
        else:
            self._away.pop(kind, None)
            return found
        now = self._clock()
        if known is not None and now - known.last > GAP:
            known = None
        since, tries = (now, 0) if known is None else (known.since, known.tries)
        self._away[kind] = _Failed(since, now, error, min(tries + 1, 10))
        raise error

    def _patience(self, known: _Failed | None) -> float:
        """Return the number of seconds that a store has to respond. It is small after a failure and
        grows with each attempt."""
        if known is None:
            return self._seconds
        return float(min(BRIEFLY * 2 ** (known.tries - 1), self._seconds))

    async def within(self, seconds: float, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`, or raise `TimeoutError` after this many seconds. Work that
        takes longer is cancelled but not awaited, because a driver may ignore the cancellation
        until its server responds."""

        async def working() -> T:
            return await work()

        task = asyncio.create_task(working(), name="store")
        self._left.add(task)
        task.add_done_callback(self._ended)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
        if not task.done():
            raise TimeoutError
        return task.result()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        forget(task)

    async def aclose(self) -> None:
        """Cancel work that timed out and is still running. Call this after the stores are
        closed."""
        for task in self._left:
            task.cancel()
        if self._left:
            await asyncio.wait({*self._left}, timeout=BRIEFLY)

    def away(self, kind: str) -> float:
        """Return for how many seconds a store has been unavailable; 0.0 if it is available."""
        known = self._away.get(kind)
        return 0.0 if known is None else self._clock() - known.since
