"""A store of each kind, `Sessions` on it, and one clock that both go by and that tests set."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from holdfast import Sessions, Store

from .places import OPEN, emptied
from .scene import Clock, damage


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=OPEN)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncGenerator[Store, None]:
    """An empty store. Whatever a test does in it, `verify` finds nothing wrong at its end."""
    async with emptied(request.param, tmp_path) as place:
        store = await OPEN[request.param](place, clock)
        try:
            yield store
            assert await damage(store) == []
        finally:
            await store.aclose()


@pytest.fixture
def sessions(store: Store, clock: Clock) -> Sessions:
    return Sessions(store, clock=clock)
