"""How much a server takes on: the limits, and what counts against them. Counts are those of one
process; nothing that matters depends on them."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from ...errors import RateLimited
from ...log.codec import LIMITS

BUCKETS = 10_000  # callers whose rate is remembered


class ServerLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one process of a server takes on.

    `rate` is requests a second of one principal, `burst` how many may come at once, None is no
    limit. `concurrent` and `streams` are of one principal, `requests` of all together.
    `reader_bytes`, `principal_bytes` and `process_bytes` are what may wait in memory to be sent: to
    one reader of a stream, to all readers of one principal, and to all. `stall_seconds` is how
    long a reader may take nothing before it is disconnected.
    `unsure_seconds` is how long a session that is not found is not said to be unknown, nor begun,
    while a store is away that may have it; None is for as long as it is away."""

    body_bytes: int = 16 << 20
    bundle_bytes: int = 64 << 20
    body_seconds: float = 30.0
    depth: int = LIMITS.depth
    attachments: int = 20
    attachment_bytes: int = 8 << 20
    rate: float | None = 100.0
    burst: int = 200
    refusals: float = 5.0  # refused logins a second of one address
    concurrent: int = 100
    streams: int = 200
    requests: int = 2_000
    reader_bytes: int = 64 << 10
    principal_bytes: int = 64 << 20
    process_bytes: int = 256 << 20
    stall_seconds: float = 60.0
    wait_seconds: float = 300.0  # how long a request may wait for an answer
    idle_seconds: float = 600.0  # how long a session stays open that nobody uses
    unsure_seconds: float | None = 30.0
    open_sessions: int = 2_000
    tenants: int = 1_000
    loaded_agents: int = 1_000

    def faults(self) -> Iterator[str]:
        """What is wrong with them."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                yield f"limits.{name} is {value!r}: give a number above 0"


class Rate:
    """A bucket of tokens for each name: `rate` a second flow in, `burst` fit."""

    def __init__(
        self,
        rate: float | None,
        burst: float,
        what: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._burst, self._what, self._clock = rate, burst, what, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> None:
        """Take a token (`RateLimited` says when there will be one)."""
        self._spend(name, 1.0)

    def check(self, name: str) -> None:
        """Refuse where there is no token, and take none."""
        self._spend(name, 0.0)

    def _spend(self, name: str, tokens: float) -> None:
        if self._rate is None:
            return
        now = self._clock()
        left, then = self._buckets.pop(name, (float(self._burst), now))
        left = min(float(self._burst), left + (now - then) * self._rate)
        enough = left >= 1.0
        self._buckets[name] = (left - tokens if enough else left, now)
        while len(self._buckets) > BUCKETS:
            self._buckets.popitem(last=False)
        if not enough:
            wait = round((1.0 - left) / self._rate, 3)
            raise RateLimited(what=self._what, limit=self._rate, retry_after=max(wait, 0.001))


class Gate:
    """How many of something each name has at the same time."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit, self._what = limit, what
        self._inside: Counter[str] = Counter()

    @contextmanager
    def through(self, name: str) -> Iterator[None]:
        """Be one of them (`RateLimited` where there are as many as may be)."""
        if self._inside[name] >= self._limit:
            raise RateLimited(what=self._what, limit=self._limit, retry_after=1.0)
        self._inside[name] += 1
        try:
            yield
        finally:
            self._inside[name] -= 1
            if not self._inside[name]:
                del self._inside[name]
