"""Sessions at different points of their lives, in a SQLite store whose clock stands where told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast import Sessions
from holdfast.store import wall_clock
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.url_display import place

HOUR = 3_600_000  # ms
DAY = 24 * HOUR

Live = Callable[[Sessions], Awaitable[object]]


def live(url: str, life: Live, *, ago: int = 0) -> None:
    """Let sessions live `ago` ms before now, in a store that is then closed."""

    def clock() -> int:
        return wall_clock() - ago

    async def opened() -> None:
        path = place(url)
        assert path is not None
        store = await SqliteStore.open(path, clock=clock)
        try:
            await life(Sessions(store, actor="app", clock=clock))
        finally:
            await store.aclose()

    asyncio.run(opened())
