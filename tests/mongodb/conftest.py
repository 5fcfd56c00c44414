"""A store on each shape of MongoDB server, and its database as a stranger sees it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from holdfast.stores.mongodb import MongoStore
from tests import servers

Raw = AsyncDatabase[dict[str, Any]]


@pytest.fixture(params=["mongodb", "standalone"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, tmp_path: Path) -> str:
    return servers.url(kind, tmp_path)


@pytest.fixture
async def store(url: str) -> AsyncGenerator[MongoStore, None]:
    store = await MongoStore.open(url)
    yield store
    await store.aclose()


@pytest.fixture
async def other(url: str, store: MongoStore) -> AsyncGenerator[MongoStore, None]:
    """The same store in what could be another process: it shares nothing with the first."""
    other = await MongoStore.open(url)
    yield other
    await other.aclose()


@pytest.fixture
async def raw(url: str, store: MongoStore) -> AsyncGenerator[Raw, None]:
    """The database past the store."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    yield client[urlsplit(url).path.lstrip("/")]
    await client.close()
