"""Tools for testing programs that use Holdfast, and custom stores.

`StoreContract`, `SearchContract` and `AdapterContract` are test suites: for a store, for its
search, and for an adapter of an SDK. `holdfast.testing.faults` injects failures into a store;
`holdfast.testing.plugin` provides pytest fixtures. The contracts and the plugin need the extra
`testing`; the faults need no extra.
"""

from __future__ import annotations

from importlib import import_module, util
from typing import TYPE_CHECKING

from ..errors import MissingExtra
from .faults import Die, Fail, Fault, FaultyStore, Stall

if TYPE_CHECKING:
    from .adapter_contract import AdapterContract
    from .search_contract import SearchContract
    from .store_contract import StoreContract

_TESTS = (
    "adapter_contract",
    "samples",
    "store_contract",
    "history_contract",
    "records_contract",
    "catalog_contract",
    "hostile_contract",
    "search_contract",
)

_CONTRACTS = {
    "AdapterContract": "adapter_contract",
    "SearchContract": "search_contract",
    "StoreContract": "store_contract",
}

__all__ = [
    "AdapterContract",
    "Die",
    "Fail",
    "Fault",
    "FaultyStore",
    "SearchContract",
    "Stall",
    "StoreContract",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    # Imported on demand: a child process that only uses faults should not import pytest.
    module = _CONTRACTS.get(name)
    if module is None:
        raise AttributeError(name)
    if util.find_spec("pytest") is None:
        raise MissingExtra(extra="testing", needed_for=f"holdfast.testing.{name}")
    # Makes pytest show values when an assertion of these tests fails, as in the user's own tests.
    import_module("pytest").register_assert_rewrite(*(f"{__name__}.{part}" for part in _TESTS))
    return getattr(import_module(f"{__name__}.{module}"), name)
