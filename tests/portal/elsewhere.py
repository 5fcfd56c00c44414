"""Stores whose event loop runs in another thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast import Store
from holdfast.portal import LoopThread
from holdfast.stores.portal import PortalStore


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


async def until(holds: Callable[[], bool], pause: Callable[[float], Awaitable[None]]) -> None:
    """Wait for something that happens in another thread."""
    for _ in range(5_000):
        if holds():
            return
        await pause(0.001)
    raise TimeoutError
