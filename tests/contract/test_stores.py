"""The contract on every store, and the rows of the parity tables that it proves whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import quote

import pytest

import holdfast
from holdfast.testing import StoreContract

URLS = {
    "memory": "memory:",
    "sqlite": "sqlite:{place}/holdfast.db",
    "file": "file:{place}/holdfast",
}


class TestStores(StoreContract):
    @pytest.fixture(params=URLS)
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncGenerator[holdfast.Store, None]:
        url = URLS[request.param].format(place=quote(str(tmp_path)))
        async with holdfast.connect(url) as store:
            yield store

    @pytest.mark.parity("user-demand", 41)
    async def test_order_comes_from_the_numbers_alone(self, store: holdfast.Store) -> None:
        await super().test_order_comes_from_the_numbers_alone(store)
