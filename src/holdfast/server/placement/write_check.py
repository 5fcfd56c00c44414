"""Whether the default store takes writes: found out by one that changes nothing, now and then, and
remembered in between. Whoever asks whether a server is ready may ask every second."""

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
PATIENCE = 5.0  # seconds that a store has to answer
GOOD = 10.0  # seconds that a store is believed to take writes which has just taken one
AGAIN = 1.0  # seconds before one is tried again that does not
NOBODY = Scope("~ready", "ready")


class Writing:
    """What is known about the writes of a store. `store` opens it."""

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
        """`ok`, or what is wrong, in words that name no place. Where it was wrong before, nobody
        waits for what the next attempt comes to."""
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
            # A name that nobody has is given up: a write of nothing, which a store that is read
            # only refuses like any other.
            await store.unclaim(NOBODY.tenant, NOBODY.session, NOBODY)
            found = OK
        except HoldfastError as error:
            found = _refused(error.code)
        except Exception as error:  # whatever a store of the program's own raises
            LOGGER.error("the store takes no writes: %s", type(error).__name__)
            found = _refused("failed")
        self._known, self._trying = found, None
        self._until = self._clock() + (GOOD if found == OK else AGAIN)

    async def aclose(self) -> None:
        """End an attempt that is going on."""
        if self._trying is not None:
            await ended(self._trying)


def _refused(why: str) -> str:
    return f"takes no writes ({why})"
