"""LangGraph's checkpointer on every kind of store: its published conformance suite."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from holdfast import InvalidValue, Store, Vault, connect
from holdfast.adapters import retries
from holdfast.adapters.langgraph import HoldfastSaver

from .conftest import URLS


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)


@pytest.fixture(params=[*URLS, "vault"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    vault = Vault([Vault.new_key("first")]) if request.param == "vault" else None
    url = URLS["sqlite" if vault else request.param](tmp_path)
    async with connect(url, vault=vault) as store:
        yield store


async def test_published_conformance_suite_passes(store: Store) -> None:
    @checkpointer_test(name="HoldfastSaver")
    async def saver() -> AsyncGenerator[HoldfastSaver, None]:
        yield HoldfastSaver(store)

    report = await validate(saver)
    assert {name: found.failures for name, found in report.results.items() if found.failures} == {}
    assert len(report.results) == 8
    assert all(found.passed for found in report.results.values())


@pytest.mark.parametrize("store", [None, 3, b"sqlite:x.db"])
async def test_something_that_is_not_a_store_is_rejected_within_a_loop(store: Any) -> None:
    with pytest.raises(InvalidValue, match=r"store is .*pass the URL of a store"):
        HoldfastSaver(store)
