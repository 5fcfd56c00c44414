"""A store of each kind, and the adapter on it. A kind of store is one line in `URLS`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from urllib.parse import quote

import claude_agent_sdk  # noqa: F401 - as its users do, before a loop runs
import pytest

from holdfast import Store, connect
from holdfast.adapters.claude import ClaudeSessionStore
from tests import servers
from tests.servers import recycled

URLS: dict[str, Callable[[Path], str]] = {
    "memory": lambda place: "memory:",
    "file": lambda place: f"file:{quote(str(place))}/holdfast",
    "sqlite": lambda place: f"sqlite:{quote(str(place))}/holdfast.db",
    "postgres": lambda place: servers.url("postgres", place),
    "mongodb": lambda place: servers.url("mongodb", place),
}
SHARED = [kind for kind in URLS if kind != "memory"]  # several processes can use these


@pytest.fixture(params=URLS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[str, None]:
    """The URL of an empty store of each kind, for this process alone."""
    if request.param in servers.KINDS:
        async with recycled.empty(request.param) as url:
            yield url
    else:
        yield URLS[request.param](tmp_path)


@pytest.fixture(params=SHARED)
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of each kind that processes can share."""
    return URLS[request.param](tmp_path)


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Store, None]:
    async with connect(url) as store:
        yield store


@pytest.fixture
def sessions(store: Store) -> ClaudeSessionStore:
    return ClaudeSessionStore(store)
