"""The contract on every store, and the rows of the parity tables that it proves."""

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

# Only rows that these tests show whole; what also needs processes is proved elsewhere.
PROVES = {
    "test_order_comes_from_the_numbers_alone": ("user-demand", 41),
}


class TestStores(StoreContract):
    @pytest.fixture(params=URLS)
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncGenerator[holdfast.Store, None]:
        url = URLS[request.param].format(place=quote(str(tmp_path)))
        async with holdfast.connect(url) as store:
            yield store


def _marked(name: str, table: str, row: int) -> None:
    proof = getattr(StoreContract, name)

    @pytest.mark.parity(table, row)
    async def test(self: TestStores, store: holdfast.Store) -> None:
        await proof(self, store)

    setattr(TestStores, name, test)


for _name, (_table, _row) in PROVES.items():
    _marked(_name, _table, _row)
