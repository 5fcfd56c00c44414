"""A store of each kind."""

from __future__ import annotations

import gc
import warnings
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Store, Vault
from tests import servers


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """A deliverer that is closed while it connects may leave a connection to the garbage collector:
    the HTTP client's library drops it. It is collected here, and not in another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(params=["memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    """An empty store. Whatever a test does in it, `verify` finds nothing wrong at its end."""
    kind: str = request.param
    if kind == "sqlite+vault":
        (tmp_path / "vault.toml").write_text(f'keys = ["{Vault.new_key("test")}"]\n')
    url = {
        "sqlite+vault": f"sqlite:{tmp_path / 'v.db'}?vault={tmp_path / 'vault.toml'}",
        "memory": "memory:",
        "sqlite": f"sqlite:{tmp_path / 'a.db'}",
        "file": f"file:{tmp_path / 'a'}",
    }
    async with holdfast.connect(url.get(kind) or servers.url(kind, tmp_path)) as store:
        yield store
        assert [damage async for damage in store.verify()] == []
