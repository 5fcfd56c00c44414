"""The clients of other protocols: real ones from npm, at pinned versions, installed by Node.js."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.node import node, node_modules

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
FOLDERS = (HERE / "clients", HERE / "inspector", EXAMPLES / "front_ends")

each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@each
def test_a_fresh_machine_installs_the_pinned_clients(folder: Path) -> None:
    modules = node_modules(folder)
    asked = json.loads((folder / "package.json").read_text())["dependencies"]
    for name, version in asked.items():
        found = json.loads((modules / name / "package.json").read_text())["version"]
        assert version.rpartition("@")[2] == found
    said = subprocess.run([node(), "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("v24.")


@each
def test_a_package_lock_names_no_registry(folder: Path) -> None:
    lock = json.loads((folder / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all("integrity" in package and "resolved" not in package for package in packages)
