"""Two stores of the pairs of kinds, each in a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Store, connect

from .scene import PAIRS, SERVERS, URLS

KINDS = URLS | SERVERS


def place(tmp_path: Path, kind: str, name: str) -> str:
    (tmp_path / name).mkdir(exist_ok=True)
    return KINDS[kind](tmp_path / name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = [name for name in ("source_kind", "target_kind") if name in metafunc.fixturenames]
    if len(named) == 2:
        metafunc.parametrize(named, PAIRS)
    elif named:
        metafunc.parametrize(named[0], KINDS)


@pytest.fixture
async def source(source_kind: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with connect(place(tmp_path, source_kind, "source")) as store:
        yield store


@pytest.fixture
async def target(target_kind: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with connect(place(tmp_path, target_kind, "target")) as store:
        yield store
