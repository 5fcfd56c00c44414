"""One server behind a wire per kind, and a store on it in a place of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

import holdfast
from tests import servers


@pytest.fixture(scope="session", params=servers.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def place(kind: str) -> Iterator[servers.Faulty]:
    with servers.faulty(kind) as place:
        yield place


@pytest.fixture
async def store(place: servers.Faulty, tmp_path: Path) -> AsyncGenerator[holdfast.Store, None]:
    async with holdfast.connect(place.url(tmp_path)) as store:
        yield store
