"""One request at a time begins a session of an id, whichever stores they name and whichever replica
they reach; else one id could be begun in two stores at the same moment.

The turn is a claim of the id in the default store. It is given back when the session is there; that
of a process that died is taken over after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from ...errors import HoldfastError
from ...log.events import Scope, new_id
from ...stores.port import Store, wall_clock

LOST = 30.0  # seconds after which whoever has the turn counts as gone
FIRST, LONGEST = 0.02, 0.5  # seconds between two looks, doubled each time


@contextlib.asynccontextmanager
async def turn(store: Store, scope: Scope) -> AsyncGenerator[None, None]:
    """Have the name `scope.session`, among those of `scope.tenant`, to oneself."""
    tenant, name = scope.tenant, f"begin:{scope.session}"
    mine = Scope(tenant, f"{wall_clock()}.{new_id()}")
    gone: Scope | None = None
    pause = FIRST
    while (holder := await store.claim(tenant, name, mine, instead_of=gone)) != mine:
        gone = holder if _lost(holder) else None
        if gone is None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST)
    try:
        yield
    finally:
        with contextlib.suppress(HoldfastError):  # then it is taken over
            await store.unclaim(tenant, name, mine)


def _lost(holder: Scope) -> bool:
    since = int(holder.session.partition(".")[0])
    # One from the future is of a clock that was set back since.
    return abs(wall_clock() - since) > LOST * 1000
