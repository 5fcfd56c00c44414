"""A server in memory, and stores of each kind to run one on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.sessions import places

from .scene import Api, serving


@pytest.fixture
async def api() -> AsyncGenerator[Api, None]:
    """A server whose store is in memory."""
    async with serving() as one:
        yield one


@pytest.fixture(params=places.OPEN)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of each kind."""
    return places.url(request.param, tmp_path)


@pytest.fixture(params=places.SHARED)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of each kind that outlives its process."""
    return places.url(request.param, tmp_path)
