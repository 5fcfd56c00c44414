"""A lock for creating a session: only one request at a time can create a session with a given id,
in any store and on any replica. Without it, two requests could create the same id in two stores.

The lock is a claim of the id in the default store. It is released when the session exists; if its
holder crashes, another request takes it over after a while.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from ...backoff import Backoff
from ...environment import wall_clock
from ...errors import HoldfastError
from ...log.events import Scope, new_id
from ...stores.port import Store

LOST = 30.0  # seconds after which the holder of the lock counts as crashed
FIRST, LONGEST = 0.02, 0.5  # seconds between two attempts, doubled each time


@contextlib.asynccontextmanager
async def turn(store: Store, scope: Scope) -> AsyncGenerator[None, None]:
    """Context manager that holds the lock for creating a session with the id `scope.session`."""
    tenant, name = scope.tenant, f"begin:{scope.session}"
    mine = Scope(tenant, f"{wall_clock()}.{new_id()}")
    gone: Scope | None = None
    backoff = Backoff(FIRST, LONGEST)
    while (holder := await store.claim(tenant, name, mine, instead_of=gone)) != mine:
        gone = holder if _lost(holder) else None
        if gone is None:
            await backoff.wait()
    try:
        yield
    finally:
        with contextlib.suppress(HoldfastError):  # another request takes over the lock later
            await store.unclaim(tenant, name, mine)


def _lost(holder: Scope) -> bool:
    since = int(holder.session.partition(".")[0])
    # A time in the future means that the clock was set back.
    return abs(wall_clock() - since) > LOST * 1000
