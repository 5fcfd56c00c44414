"""The lease of one driver: it is renewed in the background and fences the driver's writes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from ...errors import HeadMoved, LeaseLost, LogReplaced, SessionNotFound, StoreUnavailable
from ...log.events import NewEvent
from ...stores.port import Lease
from ..agents.config import Config
from ..live.debounce import Debounced
from ..live.log import Live
from ..telemetry.logs import BoundLog


class Hold:
    """A lease that this driver holds. `lost` is called when it is lost. All writes here are
    fenced."""

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
            self._lost(error)
            return
        except Exception as error:  # any error may pass while the lease lasts
            self._log.warning("renew_failed", category="storage", error=error)
        self._renewal.ask()

    async def append(self, events: Sequence[NewEvent], expected: int | None) -> int:
        """Append. Retries with the same events while the store is unavailable, which is safe
        because of their ids. Returns the number of the last event."""
        live, attempts = self._live, self._config.policy.retry.storage
        for n in range(1, attempts.times + 1):
            try:
                done = await self._store.append(
                    live.key, events, expected=expected, fence=self.lease, log=live.log
                )
            except StoreUnavailable as error:
                live.trouble(error)
                self._log.error("append_failed", category="storage", error=error, attempt=n)
                if n == attempts.times:
                    raise
                await asyncio.sleep(attempts.delay(n))
            except LeaseLost as error:
                self._lost(error)  # cancels all other work of this driver
                raise
            else:
                return done.head
        raise AssertionError("unreachable")

    async def release_if_idle(self) -> bool:
        """Release the lease. Returns False, and keeps it, if there are new events to decide on."""
        try:
            await self._store.release(self.lease, head=self._live.state.head)
        except HeadMoved as moved:
            await self._live.reach(moved.head)
            return False
        return True

    async def release(self) -> None:
        """Release the lease unconditionally."""
        await self._store.release(self.lease)
