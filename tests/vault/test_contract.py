"""The contract on a store behind a vault: one in memory, and one that is shared. What a vault keeps
of each store's own, its other tests hold on all of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import holdfast
from holdfast import Vault
from holdfast.testing import StoreContract
from tests.contract.test_stores import url_of


@pytest.mark.parity("user-demand", 64)
class TestVault(StoreContract):
    ONE_CASE = ("postgres",)  # it is given what the one in memory is given

    # Its own events are such: what it is given is encrypted before it has a number.
    test_what_is_kept_of_an_event_may_depend_on_its_number = None  # type: ignore[assignment]

    @pytest.fixture(params=["memory", "postgres"])
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncGenerator[holdfast.Store, None]:
        vault = Vault([Vault.new_key("first")])
        async with (
            url_of(request.param, tmp_path) as url,
            holdfast.connect(url, vault=vault) as store,
        ):
            yield store
