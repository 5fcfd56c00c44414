"""Argument checks and delegation, written once for all stores."""

from __future__ import annotations

import pytest

from holdfast.errors import InvalidValue
from holdfast.events import Key, NewEvent
from holdfast.log.catalog import Row
from holdfast.store import Store
from holdfast.stores.checked import CHECKS, CheckedStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.mongodb import MongoStore
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.vault.store import VaultStore
from holdfast.stores.wrapped import WrappedStore

METHODS = {name for name in vars(Store) if not name.startswith("_")}
UNCHECKED = {"renew", "release", "purge", "info", "aclose"}  # take nothing that could be wrong
BAD = Key("t", "", "main")


def test_every_method_of_the_port_is_checked_or_takes_nothing() -> None:
    assert set(CHECKS) | UNCHECKED == METHODS
    assert not set(CHECKS) & UNCHECKED


def test_a_wrapped_store_passes_every_method_on() -> None:
    assert set(vars(WrappedStore)) >= METHODS


@pytest.mark.parametrize("store", [MemoryStore, SqliteStore, PostgresStore, MongoStore, VaultStore])
def test_every_store_is_checked(store: type) -> None:
    assert issubclass(store, CheckedStore)
    for name in set(CHECKS) & set(vars(store)):
        assert hasattr(vars(store)[name], "__wrapped__"), name


async def test_a_coroutine_raises_when_awaited_and_a_stream_when_called() -> None:
    store = MemoryStore()
    appending = store.append(BAD, [NewEvent.of("app.note", {})])
    with pytest.raises(InvalidValue, match="session"):
        await appending
    with pytest.raises(InvalidValue, match="session"):
        store.read(BAD)


async def test_a_method_that_a_subclass_defines_is_checked_too() -> None:
    class Mine(MemoryStore):
        async def row(self, key: Key) -> Row | None:
            raise AssertionError("called with a key that no store can hold")

    with pytest.raises(InvalidValue, match="session"):
        await Mine().row(BAD)
