"""Asking one of several stores, any of which may be away: for so long and no longer, and not again
at once where it has just failed. Nobody waits for the patience of a store that others can do
without."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from ...errors import HoldfastError, LogDamaged, MissingExtra, StoreError, StoreUnavailable

T = TypeVar("T")
TIMEOUT = 5.0  # seconds that a store has to answer: a slow one is not an unavailable one
BRIEFLY = 1.0  # seconds that a store has which did not answer the last time
GAP = 60.0  # seconds without a question after which an absence counts from anew
AGAIN = 2.0  # seconds after a failure in which it is not asked


class _Failed(NamedTuple):
    since: float
    last: float
    error: HoldfastError
    tries: int


class Reaching:
    """The stores of a server by their kinds, each with `seconds` to answer, and since when those
    do not that are away."""

    def __init__(
        self, seconds: float = TIMEOUT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._clock = seconds, clock
        self._away: dict[str, _Failed] = {}
        self._left: set[asyncio.Task[Any]] = set()

    async def ask(self, kind: str, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` gives; where the store cannot be opened or does not answer, a `StoreError`
        or `MissingExtra`, which `away` knows of."""
        known = self._away.get(kind)
        if known is not None and self._clock() < known.last + AGAIN:
            raise StoreUnavailable(problem=f"the {kind} store has just failed") from known.error
        error: HoldfastError
        try:
            found = await self.within(self._patience(known), work)
        except TimeoutError as late:
            error = StoreUnavailable(problem=f"the {kind} store does not answer")
            error.__cause__ = late
        except LogDamaged:
            raise
        except (StoreError, MissingExtra) as failed:
            error = failed
        else:
            self._away.pop(kind, None)
            return found
        now = self._clock()
        if known is not None and now - known.last > GAP:  # nobody knows what it did meanwhile
            known = None
        since, tries = (now, 0) if known is None else (known.since, known.tries)
        self._away[kind] = _Failed(since, now, error, min(tries + 1, 10))
        raise error

    def _patience(self, known: _Failed | None) -> float:
        """Seconds that a store has: after a failure few, and more each time."""
        if known is None:
            return self._seconds
        return float(min(BRIEFLY * 2 ** (known.tries - 1), self._seconds))

    async def within(self, seconds: float, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` gives in so many seconds (`TimeoutError`). It is told to end then, and not
        waited for: a driver may not hear of that before its server speaks."""

        async def working() -> T:
            return await work()

        task = asyncio.create_task(working(), name="reaching")
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
        if not task.cancelled():
            task.exception()  # which was told, or came too late for anybody

    async def aclose(self) -> None:
        """End what was not waited for, once the stores are closed."""
        for task in self._left:
            task.cancel()
        if self._left:
            await asyncio.wait({*self._left}, timeout=BRIEFLY)

    def away(self, kind: str) -> float:
        """For how many seconds a store is known not to answer; 0.0 if it does."""
        known = self._away.get(kind)
        return 0.0 if known is None else self._clock() - known.since
