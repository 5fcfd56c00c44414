"""What a search finds is the same on every store, also on an encrypted one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import holdfast
from holdfast import Vault
from holdfast.testing import SearchContract
from tests import servers
from tests.contract.test_stores import URLS, url_of


class TestSearch(SearchContract):
    @pytest.fixture(params=[*URLS, *servers.KINDS])
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncGenerator[holdfast.Store, None]:
        async with url_of(request.param, tmp_path) as url, holdfast.connect(url) as store:
            yield store


class TestSearchOfEncryptedStores(SearchContract):
    @pytest.fixture(params=["memory", "sqlite"])
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncGenerator[holdfast.Store, None]:
        vault = Vault([Vault.new_key("first")])
        async with (
            url_of(request.param, tmp_path) as url,
            holdfast.connect(url, vault=vault) as store,
        ):
            yield store
