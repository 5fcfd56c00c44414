"""The contract on every store, and the rows of the parity tables that it proves whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

import holdfast
from holdfast.testing import StoreContract
from tests import servers
from tests.servers import recycled

URLS = {
    "memory": "memory:",
    "sqlite": "sqlite:{place}/holdfast.db",
    "file": "file:{place}/holdfast",
}


@asynccontextmanager
async def url_of(kind: str, place: Path) -> AsyncGenerator[str, None]:
    if kind in servers.KINDS:
        async with recycled.empty(kind) as url:
            yield url
    else:
        yield URLS[kind].format(place=quote(str(place)))


@pytest.mark.parity("harness-kernel", 104)
class TestStores(StoreContract):
    @pytest.fixture(params=[*URLS, *servers.KINDS])
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncGenerator[holdfast.Store, None]:
        async with url_of(request.param, tmp_path) as url, holdfast.connect(url) as store:
            yield store

    @pytest.mark.parity("user-demand", 41)
    async def test_order_comes_from_the_numbers_alone(self, store: holdfast.Store) -> None:
        await super().test_order_comes_from_the_numbers_alone(store)
