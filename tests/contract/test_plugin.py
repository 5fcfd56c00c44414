"""The contract and the fixtures work in a suite that is not ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import NewEvent, Store, key

pytest_plugins = ["holdfast.testing.plugin"]

# Plugins of packages that our own tests install; they take a process half a second to import.
OTHERS = ("schemathesis", "anyio", "faker", "platformdirs", "langsmith_plugin")
WITHOUT_OTHERS = [f"-pno:{name}" for name in OTHERS]

STRANGERS_SUITE = """
import pytest
from holdfast.testing import StoreContract

pytest_plugins = ["holdfast.testing.plugin"]

class TestMine(StoreContract):
    @pytest.fixture
    def store(self, memory_store):
        return memory_store
"""


async def test_each_fixture_is_an_open_store(
    memory_store: Store, sqlite_store: Store, file_store: Store
) -> None:
    for store in (memory_store, sqlite_store, file_store):
        await store.append(key("s"), [NewEvent.of("note.made", {"n": 1})], create=True)
        assert [event.json() async for event in store.read(key("s"))] == [{"n": 1}]
    kinds = [store.info().kind for store in (memory_store, sqlite_store, file_store)]
    assert kinds == ["memory", "sqlite", "file"]


@pytest.mark.parity("user-demand", 36)
def test_a_strangers_suite_needs_no_configuration_for_the_contract(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(STRANGERS_SUITE)
    strict = ["--strict-markers", "--strict-config", "-p", "no:cacheprovider", "-k", "stale or row"]
    command = [sys.executable, "-m", "pytest", "-q", *WITHOUT_OTHERS, *strict, str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout.decode()
    assert b" passed" in ran.stdout


def test_without_pytest_the_contract_names_the_extra_to_install() -> None:
    code = """
import sys
sys.modules["pytest"] = None
import holdfast.testing
try:
    holdfast.testing.StoreContract
except holdfast.MissingExtra as error:
    print(error.extra)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert ran.stdout.split() == [b"testing"]
