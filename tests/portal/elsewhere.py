"""Event loops in other threads, for tests that call a store from several places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from holdfast import Store
from holdfast.portal import LoopThread, Portal
from holdfast.stores.portal import PortalStore


@contextmanager
def loop_thread() -> Iterator[Portal]:
    """An event loop in a thread."""
    portal = LoopThread("elsewhere")
    try:
        yield portal
    finally:
        portal.stop()


@asynccontextmanager
async def owned_elsewhere(inner: Store) -> AsyncIterator[PortalStore]:
    """A store whose owner is an event loop in another thread."""
    portal = LoopThread("owner")
    try:
        yield PortalStore(inner, portal)
    finally:
        await asyncio.to_thread(portal.stop)


async def collected(items: AsyncGenerator[object, None], count: int) -> list[object]:
    """The first items of a stream that does not end."""
    found: list[object] = []
    async for item in items:
        found.append(item)
        if len(found) == count:
            break
    await items.aclose()
    return found
