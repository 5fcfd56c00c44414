"""A pytest plugin for LangGraph's graph tests: their checkpointers become `HoldfastSaver`.

It takes the place of their `conftest.py`, which needs servers of its own. `suite` says on which
store; each test has a tenant of its own there.
"""

from __future__ import annotations

import sys
import types
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import suite  # type: ignore[import-not-found]
from langgraph.cache.memory import InMemoryCache
from langgraph.store.memory import InMemoryStore

from holdfast.adapters.langgraph import HoldfastSaver


class Anything:
    """Equal to anything: stands for recorded drawings and schemas of graphs, which no checkpointer
    influences."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Mocker:
    """The parts of `pytest-mock` that the tests use."""

    Mock = mock.Mock

    def __init__(self) -> None:
        self.active: list[Any] = []

    def patch(self, target: str, **options: Any) -> Any:
        self.active.append(mock.patch(target, **options))
        return self.active[-1].start()


for name, word in (("syrupy", "SnapshotAssertion"), ("pytest_mock", "MockerFixture")):
    module = types.ModuleType(name)
    setattr(module, word, Any)
    sys.modules[name] = module


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def snapshot() -> Anything:
    return Anything()


@pytest.fixture
def mocker() -> Iterator[Mocker]:
    made = Mocker()
    yield made
    for each in reversed(made.active):
        each.stop()


@pytest.fixture
def deterministic_uuids(mocker: Mocker) -> Any:
    ids = (uuid.UUID(f"00000000-0000-4000-8000-{n:012}", version=4) for n in range(10_000))
    return mocker.patch("uuid.uuid4", side_effect=ids)


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def cache() -> InMemoryCache[Any]:
    return InMemoryCache()


@pytest.fixture
def sync_store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def async_store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def sync_checkpointer(kind: str) -> HoldfastSaver:
    return HoldfastSaver(suite.store(), tenant=suite.tenant())


@pytest.fixture
def async_checkpointer(kind: str) -> HoldfastSaver:
    return HoldfastSaver(suite.store(), tenant=suite.tenant())
