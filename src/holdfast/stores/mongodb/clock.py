"""The clock of a store: the caller's clock, or an estimate of the server's clock.

Machines agree about leases only if they use the same clock. The server's clock is read
occasionally. In between, the time since that reading is measured with this machine's monotonic
clock, so that setting the wall clock has no effect.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from .entry import Document

AGE = 60.0  # seconds for which the last reading is valid
SLOW = 1.0  # a reading that took longer is too imprecise


class Clock(Protocol):
    """The interface of a store's clock. Times are UTC in ms."""

    async def now(self) -> int: ...

    async def asked(self) -> int:
        """Return the time after reading the source again, because this machine may have been
        suspended since the last reading."""
        ...


class GivenClock:
    """A clock function that the caller passed to the store."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    async def now(self) -> int:
        return self._clock()

    async def asked(self) -> int:
        return self._clock()


class ServerClock:
    """An estimate of the server's clock. A reading is assumed to be taken in the middle of its
    round trip."""

    def __init__(self, hello: Callable[[], Awaitable[Document]]) -> None:
        self._hello = hello
        self._offset: float | None = None
        self._asked = 0.0

    async def now(self) -> int:
        if self._offset is None or time.monotonic() - self._asked > AGE:
            await self._ask()
        assert self._offset is not None
        return int(time.monotonic() * 1000 + self._offset)

    async def asked(self) -> int:
        await self._ask()
        return await self.now()

    async def _ask(self) -> None:
        sent = time.monotonic()
        answer = await self._hello()
        came = time.monotonic()
        if self._offset is None or came - sent < SLOW:
            at: datetime = answer["localTime"]
            self._offset = _ms(at) - 1000 * (sent + came) / 2
        self._asked = came


def _ms(at: datetime) -> float:
    # The driver returns UTC without a time zone, unless the caller's client sets one.
    epoch = datetime(1970, 1, 1, tzinfo=at.tzinfo)
    return (at - epoch).total_seconds() * 1000
