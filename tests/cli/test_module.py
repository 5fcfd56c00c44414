"""`python -m holdfast` is the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["holdfast", "holdfast.cli"])
def test_the_package_runs_as_a_program(module: str) -> None:
    command = [sys.executable, "-m", module]
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.strip()
    wrong = subprocess.run([*command, "nothing"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, "nothing" in wrong.stderr) == (2, True)
