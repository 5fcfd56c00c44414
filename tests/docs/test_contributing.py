"""`CONTRIBUTING.md` names tests, files and scripts that exist, and every package."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = re.findall(r"`(tests/[\w/.]+?)(?:::(\w+))?`", PAGE)


def functions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def test_every_test_that_is_named_exists() -> None:
    assert len(NAMED) > 40
    for path, test in NAMED:
        assert (ROOT / path).exists(), path
        assert not test or test in functions(ROOT / path), f"{path}::{test}"


def test_every_step_of_a_checklist_names_the_test_that_fails_without_it() -> None:
    section = PAGE.partition("## Checklists")[2].partition("### Add an option")[0]
    steps = re.split(r"^\d+\. ", section, flags=re.M)[1:]
    assert len(steps) > 20
    assert [step for step in steps if "`tests/" not in step] == []
    rows = re.findall(r"^\| .* \| (.*) \|$", PAGE.partition("### Add an option")[2], re.M)
    assert [row for row in rows[1:] if "`tests/" not in row and "same test" not in row] == []


def test_every_script_and_module_that_is_named_exists() -> None:
    for script in re.findall(r"`(scripts/\w+)", PAGE):
        assert os.access(ROOT / script, os.X_OK), script
    section = PAGE.partition("## Checklists")[2]
    for path in re.findall(r"`([a-z_]+/[\w/]*\.py|[a-z_]+/)`", section):
        if not path.startswith(("tests/", "docs/")):
            assert (ROOT / "src" / "holdfast" / path).exists(), path


def test_every_package_has_a_line() -> None:
    table = PAGE.partition("## Where things go")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)(?:/|\.py)`", table))
    package = ROOT / "src" / "holdfast"
    found = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert named == found - {"__init__", "__main__", "__pycache__", "py"}
