"""The limits of a server, and the counters that enforce them. Each process counts separately."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from ...errors import RateLimited
from ...log.codec import LIMITS
from ..recent import RecentMap

BUCKETS = 10_000  # callers whose rate is counted


class ServerLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one process of a server.

    - `rate`: requests per second of one principal, or None for no limit; `burst`: the number of
      requests allowed at once
    - `concurrent` and `streams`: concurrent requests and streams of one principal; `requests`:
      concurrent requests of all principals
    - `reader_bytes`, `principal_bytes` and `process_bytes`: unsent data in memory, for one reader
      of a stream, all readers of one principal, and all readers
    - `stall_seconds`: how long a client may read nothing before it is disconnected
    - `unsure_seconds`: for how long a request for an unknown session fails with 503 instead of 404
      while a store that may contain the session is unavailable; None: as long as it is unavailable

    See [the server](../server.md).
    """

    body_bytes: int = 16 << 20
    bundle_bytes: int = 64 << 20
    body_seconds: float = 30.0
    depth: int = LIMITS.depth
    attachments: int = 20
    attachment_bytes: int = 8 << 20
    rate: float | None = 100.0
    burst: int = 200
    refusals: float = 5.0  # failed logins per second from one address
    concurrent: int = 100
    streams: int = 200
    requests: int = 2_000
    reader_bytes: int = 64 << 10
    principal_bytes: int = 64 << 20
    process_bytes: int = 256 << 20
    stall_seconds: float = 60.0
    wait_seconds: float = 300.0  # how long a request may wait for a result
    idle_seconds: float = 600.0  # how long an unused session stays open
    unsure_seconds: float | None = 30.0
    open_sessions: int = 2_000
    tenants: int = 1_000
    loaded_agents: int = 1_000

    def faults(self) -> Iterator[str]:
        """Yield a description of each invalid limit."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                yield f"limits.{name} must be a number above 0, got {value!r}"


class RateLimiter:
    """A token bucket for each name: `rate` tokens are added per second, up to `burst`."""

    def __init__(
        self,
        rate: float | None,
        burst: float,
        what: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._burst, self._what, self._clock = rate, burst, what, clock
        self._buckets: RecentMap[str, tuple[float, float]] = RecentMap(BUCKETS)

    def take(self, name: str) -> None:
        """Take a token. Raises `RateLimited`, with the time until the next token, if there is
        none."""
        self._spend(name, 1.0)

    def check(self, name: str) -> None:
        """Raise `RateLimited` if there is no token, without taking one."""
        self._spend(name, 0.0)

    def _spend(self, name: str, tokens: float) -> None:
        if self._rate is None:
            return
        now = self._clock()
        left, then = self._buckets.pop(name, (float(self._burst), now))
        left = min(float(self._burst), left + (now - then) * self._rate)
        enough = left >= 1.0
        self._buckets[name] = (left - tokens if enough else left, now)
        if not enough:
            wait = round((1.0 - left) / self._rate, 3)
            raise RateLimited(what=self._what, limit=self._rate, retry_after=max(wait, 0.001))


class ConcurrencyLimiter:
    """Limits the number of concurrent requests or streams for each name."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit, self._what = limit, what
        self._inside: Counter[str] = Counter()

    @contextmanager
    def through(self, name: str) -> Iterator[None]:
        """Context manager that counts one request or stream for a name. Raises `RateLimited` at the
        limit."""
        if self._inside[name] >= self._limit:
            raise RateLimited(what=self._what, limit=self._limit, retry_after=1.0)
        self._inside[name] += 1
        try:
            yield
        finally:
            self._inside[name] -= 1
            if not self._inside[name]:
                del self._inside[name]
