"""The clients of other protocols: real ones from npm, at pinned versions, installed by Node.js."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.node import node, node_modules

CLIENTS = Path(__file__).parent / "clients"


def test_a_fresh_machine_installs_the_pinned_clients() -> None:
    modules = node_modules(CLIENTS)
    asked = json.loads((CLIENTS / "package.json").read_text())["dependencies"]
    for name, version in asked.items():
        found = json.loads((modules / name / "package.json").read_text())["version"]
        assert version.rpartition("@")[2] == found
    said = subprocess.run([node(), "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("v24.")


def test_a_package_lock_names_no_registry() -> None:
    lock = json.loads((CLIENTS / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all("integrity" in package and "resolved" not in package for package in packages)
