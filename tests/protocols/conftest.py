"""A server in a process of its own that the clients of other protocols talk to."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.console.server import Office, Server, served
from tests.server.scene import Api, serving

_tenants = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Server, None]:
    async with served(tmp_path_factory.mktemp("protocols")) as one:
        yield one


@pytest.fixture
async def api() -> AsyncGenerator[Api, None]:
    """A server in this process, whose store is in memory."""
    async with serving() as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def office(server: Server) -> AsyncGenerator[Office, None]:
    """A tenant with nothing in it."""
    one = Office(server, f"office{next(_tenants)}")
    yield one
    await one.aclose()
