"""ARCHITECTURE.md stays true: the files and functions that it names exist, and both walks from a
call to the durable append are short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "holdfast"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
STEP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", re.M)
WALKS = {
    title: STEP.findall(PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0])
    for title in ("From `send()` to the durable append", "From an HTTP request to the same append")
}


def defined(path: Path) -> set[str]:
    """The functions and classes of a file, methods as `Class.method`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            inner = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            names |= {node.name, *(f"{node.name}.{n.name}" for n in inner)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_to_the_durable_append_is_short_and_true(title: str) -> None:
    steps = WALKS[title]
    assert len(steps) > 3
    assert len({path for path, _ in steps}) <= 12
    for path, name in steps:
        assert name in defined(SOURCE / path), f"{path} has no {name}"


def test_every_file_that_is_named_exists() -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", PAGE)
    assert len(named) > 10
    for path in named:
        assert (ROOT / path).exists() or (SOURCE / path).exists(), path


def test_every_package_is_described() -> None:
    table = PAGE.partition("\n## Packages\n")[2].partition("\n## ")[0]
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}/`" not in table} == set()


def test_the_page_is_two_pages_long() -> None:
    assert len(PAGE.split()) <= 1_400
