"""The contract of stores through a portal, with tests and store on two event loops and on one."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from holdfast import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.portal import PortalStore
from holdfast.testing import StoreContract

from .elsewhere import owned_elsewhere


class TestFromAnotherLoop(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncGenerator[Store, None]:
        async with owned_elsewhere(MemoryStore()) as store:
            yield store


class TestOnItsOwnLoop(StoreContract):
    @pytest.fixture
    async def store(self) -> Store:
        return PortalStore(MemoryStore())
