"""Pytest fixtures: an open, empty store for each test, closed afterwards.

Opt in with `pytest_plugins = ["holdfast.testing.plugin"]`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import quote

import pytest_asyncio

from ..stores import connect
from ..stores.port import Store


@pytest_asyncio.fixture
async def memory_store() -> AsyncGenerator[Store, None]:
    """A store in memory: the fastest, for tests within one process."""
    async with connect("memory:") as store:
        yield store


@pytest_asyncio.fixture
async def sqlite_store(tmp_path: Path) -> AsyncGenerator[Store, None]:
    """A store in the SQLite file `tmp_path / "holdfast.db"`."""
    async with connect(f"sqlite:{quote(str(tmp_path / 'holdfast.db'))}") as store:
        yield store


@pytest_asyncio.fixture
async def file_store(tmp_path: Path) -> AsyncGenerator[Store, None]:
    """A store in the folder `tmp_path / "holdfast"`."""
    async with connect(f"file:{quote(str(tmp_path / 'holdfast'))}") as store:
        yield store
