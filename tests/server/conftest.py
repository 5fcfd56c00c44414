"""A server in memory, and stores of each kind to run one on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import servers
from tests.servers import recycled
from tests.sessions import places

from .scene import Api, serving


@pytest.fixture
async def api() -> AsyncGenerator[Api, None]:
    """A server whose store is in memory."""
    async with serving() as one:
        yield one


@asynccontextmanager
async def emptied(kind: str, folder: Path) -> AsyncGenerator[str, None]:
    """The URL of an empty store, for this process alone."""
    if kind in servers.KINDS:
        async with recycled.empty(kind) as url:
            yield url
    else:
        yield places.url(kind, folder)


@pytest.fixture(params=places.OPEN)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[str, None]:
    """The URL of an empty store of each kind."""
    async with emptied(request.param, tmp_path) as url:
        yield url


@pytest.fixture(params=places.SHARED)
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[str, None]:
    """The URL of an empty store of each kind that outlives its process."""
    async with emptied(request.param, tmp_path) as url:
        yield url
