"""One server behind a wire per kind and module, and a store on it in a place of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

import holdfast
from tests import servers

HERE = Path(__file__).parent
MONGO = ("mongodb", "standalone")

# MongoDB's driver drops a socket that still connects when its client closes, as is common here.
DROPPED = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        given = getattr(item, "callspec", None)
        if HERE in item.path.parents and given and given.params.get("kind") in MONGO:
            item.add_marker(pytest.mark.filterwarnings(DROPPED))


@pytest.fixture(scope="module", params=servers.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def place(kind: str) -> Iterator[servers.Faulty]:
    with servers.faulty(kind) as place:
        yield place


@pytest.fixture
async def store(place: servers.Faulty, tmp_path: Path) -> AsyncGenerator[holdfast.Store, None]:
    async with holdfast.connect(place.url(tmp_path)) as store:
        yield store
