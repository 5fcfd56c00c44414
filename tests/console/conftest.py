"""One browser and one server for all tests of the console that a worker runs. A test gets windows,
and a tenant, of its own. Tests that use them run in one event loop:

    pytestmark = pytest.mark.asyncio(loop_scope="session")
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from .browser import PATIENCE, Windows, launched
from .server import Office, Server, served

_tenants = itertools.count(1)
expect.set_options(timeout=PATIENCE)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncGenerator[Browser, None]:
    async with launched() as one:
        yield one


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Server, None]:
    async with served(tmp_path_factory.mktemp("console")) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="session")
async def office(server: Server) -> AsyncGenerator[Office, None]:
    """A tenant with nothing in it."""
    one = Office(server, f"office{next(_tenants)}")
    yield one
    await one.aclose()


@pytest_asyncio.fixture(loop_scope="session")
async def windows(browser: Browser, server: Server) -> AsyncGenerator[Windows, None]:
    """Windows to open. An error of a page in them fails the test."""
    one = Windows(browser, server.url)
    yield one
    await one.aclose()
    one.check()
