"""Names that others rely on stay as they are: in logs, stores, addresses, command lines, settings.

Where one of these tests fails because something was added on purpose, write the list anew with
`python -m tests.contracts --write` (names in a database: run this with HOLDFAST_CONTRACTS=write),
look at the difference, and say it in the changelog. To remove or rename one breaks somebody's data
or program.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import NewEvent, Sessions, key
from tests import servers
from tests.contracts import CONTRACTS, KEPT, SERVERS

# Import paths that are shown to users, or that they write into settings.
IMPORTED = {
    "holdfast.models": ("Say", "Use", "ScriptedModel", "offline"),
    "holdfast.models.port": (),
    "holdfast.models.scripted": ("Say", "ScriptedModel", "Use"),
    "holdfast.bundle": ("export_bundle", "import_bundle", "review_bundle", "validate_bundle"),
    "holdfast.errors": ("HoldfastError", "InvalidValue"),
    "holdfast.events": ("KINDS", "Event", "NewEvent"),
    "holdfast.store": ("Store",),
    "holdfast.server": ("SharedSecret", "close_app", "create_app"),
    "holdfast.server.auth": ("Caller",),
    "holdfast.server.loaders": (),
    "holdfast.harness.sandbox": (),
    "holdfast.harness.tools": (),
    "holdfast.adapters.claude": (),
    "holdfast.adapters.claude.engine": ("claude_engine",),
    "holdfast.testing": ("StoreContract",),
}


def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_stays_as_it_is(name: str) -> None:
    assert json.loads(json.dumps(CONTRACTS[name]())) == kept()[name]


@pytest.mark.parametrize("module", IMPORTED)
def test_an_import_that_is_shown_works(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in IMPORTED[module] if not hasattr(found, name)] == []


@pytest.mark.parametrize("kind", SERVERS)
async def test_names_in_a_database_stay_as_they_are(kind: str, tmp_path: Path) -> None:
    url = servers.url(kind, tmp_path)  # a fresh database
    async with holdfast.connect(url) as store:
        await store.append(key("s"), [NewEvent.of("session.created", {})], create=True)
        await Sessions(store).search("word")  # this creates the collections of the index
    found = await SERVERS[kind](url)
    if os.environ.get("HOLDFAST_CONTRACTS") == "write":
        whole = {**kept(), kind: found}
        KEPT.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == kept()[kind]
