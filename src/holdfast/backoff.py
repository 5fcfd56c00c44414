"""Exponential backoff: the delays between the attempts of a call, doubled up to a limit."""

from __future__ import annotations

import asyncio

from .environment import current


class Backoff:
    """Computes the delays between retries, in seconds: `first`, then doubled each time up to
    `longest`. A random part of each delay, at most the fraction `jitter`, is subtracted, so that
    the retries of many callers are spread out."""

    def __init__(self, first: float, longest: float, *, jitter: float = 0.0) -> None:
        self._first, self._longest, self._jitter = first, longest, jitter
        self._delay = first

    def reset(self) -> None:
        """Start again with the first delay, after a successful attempt."""
        self._delay = self._first

    def next(self) -> float:
        """Return the next delay."""
        delay, self._delay = self._delay, min(2 * self._delay, self._longest)
        return delay * current().random.uniform(1 - self._jitter, 1)

    async def wait(self) -> None:
        """Sleep for the next delay."""
        await asyncio.sleep(self.next())
