"""Checks whether the default store accepts writes, by a write that changes nothing. The result is
cached, so clients may call the readiness route every second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from ...cancellation import ended
from ...errors import HoldfastError
from ...log.events import Scope
from ...stores.port import Store

LOGGER = logging.getLogger("holdfast.server")
OK = "ok"
PATIENCE = 5.0  # seconds that a store has to respond
GOOD = 10.0  # seconds that the result of a successful write is cached
AGAIN = 1.0  # seconds between two attempts after a failure
NOBODY = Scope("~ready", "ready")


class WriteCheck:
    """Checks whether a store accepts writes. `store` returns the open store."""

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._patience, self._clock = store, patience, clock
        self._known: str | None = None
        self._until = 0.0
        self._trying: asyncio.Task[None] | None = None

    async def works(self) -> str:
        """Return `ok`, or a description of the problem without the location of the store. After a
        failure, the last result is returned while the next attempt is in progress."""
        if self._trying is None and self._clock() >= self._until:
            self._trying = asyncio.create_task(self._try(), name="writes")
        trying = self._trying
        if trying is not None and self._known in (None, OK):
            done, _ = await asyncio.wait({trying}, timeout=self._patience)
            if not done:
                self._known = _refused("no answer")
        return self._known or _refused("no answer")

    async def _try(self) -> None:
        try:
            store = await self._store()
            # Releasing a claim that nobody holds changes nothing, but a read-only store rejects it.
            await store.unclaim(NOBODY.tenant, NOBODY.session, NOBODY)
            found = OK
        except HoldfastError as error:
            found = _refused(error.code)
        except Exception as error:  # a custom store may raise anything
            LOGGER.error("the store does not accept writes: %s", type(error).__name__)
            found = _refused("failed")
        self._known, self._trying = found, None
        self._until = self._clock() + (GOOD if found == OK else AGAIN)

    async def aclose(self) -> None:
        """Cancel a check that is in progress."""
        if self._trying is not None:
            await ended(self._trying)


def _refused(why: str) -> str:
    return f"does not accept writes ({why})"
