"""Pytest fixtures: an open, empty store for each test, closed afterwards; and `check_agent`, which
runs an agent on simulated clusters with failures.

Opt in with `pytest_plugins = ["holdfast.testing.plugin"]`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio

from ..stores import connect
from ..stores.port import Store
from .simulation import SimulationOutcome
from .simulation import check_agent as simulate_agent


@pytest_asyncio.fixture
async def memory_store() -> AsyncGenerator[Store, None]:
    """Yield an open, empty store in memory: the fastest store, for tests within one process."""
    async with connect("memory:") as store:
        yield store


@pytest_asyncio.fixture
async def sqlite_store(tmp_path: Path) -> AsyncGenerator[Store, None]:
    """Yield an open, empty store in the SQLite file `tmp_path / "holdfast.db"`."""
    async with connect(f"sqlite:{quote(str(tmp_path / 'holdfast.db'))}") as store:
        yield store


@pytest_asyncio.fixture
async def file_store(tmp_path: Path) -> AsyncGenerator[Store, None]:
    """Yield an open, empty store in the folder `tmp_path / "holdfast"`."""
    async with connect(f"file:{quote(str(tmp_path / 'holdfast'))}") as store:
        yield store


@pytest.fixture
def check_agent() -> Callable[..., list[SimulationOutcome]]:
    """Return the function `holdfast.testing.simulation.check_agent`."""
    return simulate_agent
