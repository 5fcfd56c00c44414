"""Two stores of the pairs of kinds, each in a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from holdfast import Store, connect
from tests.servers import recycled

from .scene import PAIRS, SERVERS, URLS

KINDS = URLS | SERVERS


def place(tmp_path: Path, kind: str, name: str) -> str:
    (tmp_path / name).mkdir(exist_ok=True)
    return KINDS[kind](tmp_path / name)


@asynccontextmanager
async def opened(tmp_path: Path, kind: str, name: str) -> AsyncIterator[Store]:
    """A store of this kind, for this process alone."""
    async with AsyncExitStack() as stack:
        if kind in SERVERS:
            url = await stack.enter_async_context(recycled.empty(kind))
        else:
            url = place(tmp_path, kind, name)
        yield await stack.enter_async_context(connect(url))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = [name for name in ("source_kind", "target_kind") if name in metafunc.fixturenames]
    if len(named) == 2:
        metafunc.parametrize(named, PAIRS)
    elif named:
        metafunc.parametrize(named[0], KINDS)


@pytest.fixture
async def source(source_kind: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(tmp_path, source_kind, "source") as store:
        yield store


@pytest.fixture
async def target(target_kind: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(tmp_path, target_kind, "target") as store:
        yield store
