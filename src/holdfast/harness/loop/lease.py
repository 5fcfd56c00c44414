"""The lease of one driver: renewed in the background, it fences the driver's writes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from ...errors import HeadMoved, LeaseLost, LogReplaced, SessionNotFound, StoreUnavailable
from ...log.events import NewEvent, new_id
from ...stores.port import Lease
from ..agents.config import Config
from ..live.debounce import Debounced
from ..live.log import Live
from ..telemetry.logs import BoundLog

T = TypeVar("T")


class Hold:
    """The lease that a driver holds. `lost` is called with the error when the lease is lost. All
    writes of this class are fenced by the lease."""

    def __init__(
        self,
        config: Config,
        live: Live,
        lease: Lease,
        log: BoundLog,
        lost: Callable[[BaseException], None],
    ) -> None:
        self.lease = lease
        self._config, self._store, self._live, self._log = config, live.store, live, log
        self._lost = lost
        self.released = False
        self._renewal = Debounced(lease.ttl / 3000, self._renew)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Context manager that renews the lease in the background."""
        self._renewal.ask()
        try:
            yield
        finally:
            await self._renewal.end(cut=True)

    async def _renew(self) -> None:
        try:
            self.lease = await self._store.renew(self.lease)
        except (LeaseLost, SessionNotFound, LogReplaced) as error:
            if not self.released:
                self._lost(error)
            return
        except Exception as error:  # retried for as long as the lease is valid
            self._log.warning("renew_failed", category="storage", error=error)
        self._renewal.ask()

    async def append(
        self, events: Sequence[NewEvent], expected: int | None, *, release: bool = False
    ) -> int:
        """Append events. Retries with the same events while the store is unavailable, which is safe
        because of their ids. With `release`, the same step releases the lease, if the store
        supports that. Returns the number of the last event."""
        live, held = self._live, self.lease
        release = release and live.store.info().lease_with_append
        lease: dict[str, Any] = {"release" if release else "fence": held}
        try:
            done = await while_unavailable(
                self._config,
                live,
                self._log,
                lambda: live.store.append(
                    live.key, events, expected=expected, log=live.log, **lease
                ),
            )
        except LeaseLost as error:
            self._lost(error)  # cancels all other work of this driver
            raise
        self.released = release and done.lease is None
        return done.head

    async def release_if_idle(self) -> bool:
        """Release the lease. Returns False, and keeps it, if there are new events to decide on."""
        try:
            await self._store.release(self.lease, head=self._live.state.head)
        except HeadMoved as moved:
            await self._live.reach(moved.head)
            return False
        self.released = True
        return True

    async def release(self) -> None:
        """Release the lease, even if there are new events."""
        if not self.released:
            await self._store.release(self.lease)


async def acquire(config: Config, live: Live, log: BoundLog) -> Lease:
    """Acquire the lease of a log. Raises `LeaseHeld` if another driver holds it. If the reply of
    the store was lost, the attempt is repeated, and returns the lease that the first attempt
    acquired."""
    if not live.store.info().lease_with_append:
        return await live.store.acquire(live.key, config.owner, ttl=config.ttl)
    mark = new_id()
    return await while_unavailable(
        config,
        live,
        log,
        lambda: live.store.acquire(live.key, config.owner, ttl=config.ttl, mark=mark),
    )


async def while_unavailable(
    config: Config, live: Live, log: BoundLog, call: Callable[[], Awaitable[T]]
) -> T:
    """Return the result of `call`, which writes to the log of `live` and is safe to repeat. It is
    repeated while the store is unavailable, up to the number of attempts in the error policy."""
    attempts = config.policy.retry.storage
    for n in range(1, attempts.times + 1):
        try:
            return await call()
        except StoreUnavailable as error:
            live.trouble(error)
            log.error("append_failed", category="storage", error=error, attempt=n)
            if n == attempts.times:
                raise
        await asyncio.sleep(attempts.delay(n))
    raise AssertionError("unreachable")
