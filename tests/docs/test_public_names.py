"""Every public class and function has a docstring with an example or a link. The examples are valid
Python, and every name that they import or use from Holdfast exists."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
SHOWN = sorted(
    name
    for page in (ROOT / "docs" / "api").glob("*.md")
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.M)
)
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
INDENTED = re.compile(r"\n\n    \S")  # the other way to write an example in Markdown
LINK = re.compile(r"\]\(([\w./-]+)(?:#[\w-]+)?\)")


def find(path: str) -> Any:
    """The object of a dotted path, of which the first parts are a module."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise LookupError(path)


def public() -> Iterator[tuple[str, Any]]:
    for name in holdfast.__all__:
        yield f"holdfast.{name}", getattr(holdfast, name)
    for path in SHOWN:
        found = find(path)
        if inspect.ismodule(found):
            yield from ((f"{path}.{name}", getattr(found, name)) for name in found.__all__)
        else:
            yield path, found


def _own_docstring(found: Any) -> str:
    """Its own: not that of a base class."""
    return (vars(found).get("__doc__") if inspect.isclass(found) else found.__doc__) or ""


NAMES = {
    id(found): (path, inspect.cleandoc(_own_docstring(found)))
    for path, found in public()
    if inspect.isclass(found) or inspect.isroutine(found)
}


def test_every_public_name_has_a_docstring_with_an_example_or_a_link() -> None:
    assert len(NAMES) > 300
    assert [path for path, text in NAMES.values() if not text] == []
    shown = (EXAMPLE, INDENTED, LINK)
    bare = [path for path, text in NAMES.values() if not any(one.search(text) for one in shown)]
    assert bare == [], "end these docstrings with an example, or 'See [stores](../stores.md).'"


def test_every_link_leads_to_a_page() -> None:
    for path, text in NAMES.values():
        for target in LINK.findall(text):
            assert (ROOT / "docs" / "api" / target).exists(), f"{path}: {target}"


EXAMPLES = [
    pytest.param(code, id=path) for path, text in NAMES.values() for code in EXAMPLE.findall(text)
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_is_valid_and_uses_names_that_exist(code: str) -> None:
    for node in ast.walk(ast.parse(_wrapped(code))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = getattr(holdfast, node.func.id, None)
            if called is not None:
                _binds(called, node)


def _wrapped(code: str) -> str:
    """The example inside a function, so that it may use `await` and `return`."""
    return "async def main():\n" + "".join(f"    {line}\n" for line in code.splitlines())


def _binds(called: Any, node: ast.Call) -> None:
    """Fail if a call of a public name has arguments that it does not take."""
    given = {keyword.arg: None for keyword in node.keywords if keyword.arg}
    inspect.signature(called).bind(*node.args, **given)
