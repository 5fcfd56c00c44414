"""Tracks which open sessions of a process are in use, and closes idle sessions."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ...cancellation import cancellable
from ...errors import HoldfastError
from ...harness import Harness
from ..auth.limits import ServerLimits

LOOK = 0.1  # interval of the search for idle sessions, as a fraction of `idle_seconds`


@dataclass
class _Use:
    """The number of users of an open session, and when it was last used."""

    users: int = 0
    last: float = 0.0


class SessionsInUse:
    """Tracks which open sessions of an engine are in use, and closes idle ones. Closing a session
    loses no data."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._uses: dict[tuple[Harness, str], _Use] = {}
        self._tidying: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def use(self, harness: Harness, session: str) -> Iterator[None]:
        """Context manager that marks a session as in use."""
        use = self._uses.setdefault((harness, session), _Use())
        use.users += 1
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.create_task(self._close_unused(), name="tidy")
        try:
            yield
        finally:
            use.users -= 1
            use.last = time.monotonic()

    def forget(self, harness: Harness, session: str | None = None) -> None:
        """Stop tracking one session of a harness, or all of them."""
        for known in [*self._uses]:
            if known[0] is harness and session in (None, known[1]):
                del self._uses[known]

    async def aclose(self) -> None:
        """Stop the task that closes idle sessions."""
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)

    async def _close_unused(self) -> None:
        while self._uses:
            await asyncio.sleep(self._limits.idle_seconds * LOOK)
            for harness, session in [*self._unused()]:
                if (harness, session) not in self._uses:
                    with contextlib.suppress(HoldfastError), cancellable():
                        await harness.close(session)

    def _unused(self) -> Iterator[tuple[Harness, str]]:
        """Yield the sessions to close: sessions that have been idle for too long, and, if too many
        are open, the sessions that have been idle the longest. A session with a run stays open."""
        now = time.monotonic()
        idle = [(use, place) for place, use in self._uses.items() if not use.users]
        too_many = len(self._uses) - self._limits.open_sessions
        for number, (use, place) in enumerate(sorted(idle, key=lambda one: one[0].last)):
            old = now - use.last >= self._limits.idle_seconds
            if (old or number < too_many) and not place[0].drives(place[1]):
                del self._uses[place]
                yield place
