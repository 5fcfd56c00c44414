"""Parses a tool's docstring into text for the model and a description of each parameter. Supports
Google style (`Args:`) and Sphinx style (`:param x:`); everything else is text."""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes|Todo):\s*$"
)
_PARAMETERS = ("Args", "Arguments", "Parameters")
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)$")


class Docstring(NamedTuple):
    """A parsed docstring: the text before its first section, and the description of each
    parameter."""

    prose: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Docstring:
    lines = inspect.cleandoc(text or "").splitlines()
    prose = lines[: next((n for n, line in enumerate(lines) if _begins(line)), len(lines))]
    return Docstring("\n".join(prose).strip(), {**_google(lines), **_sphinx(lines)})


def _begins(line: str) -> bool:
    return bool(_SECTION.match(line) or _SPHINX.match(line))


def _google(lines: list[str]) -> dict[str, str]:
    """Parse an `Args:` section. Each line at the first indent is a parameter; lines that are
    indented more continue the previous line."""
    found: dict[str, str] = {}
    inside, indent, name = False, 0, None
    for line in lines:
        if line and not line[0].isspace():
            section = _SECTION.match(line)
            inside, indent, name = bool(section and section[1] in _PARAMETERS), 0, None
            continue
        text = line.strip()
        if not (inside and text):
            continue
        depth = len(line) - len(line.lstrip())
        indent = indent or depth
        if depth <= indent:
            named = _GOOGLE.match(text)
            name = named[1] if named else None
            if named:
                found[named[1]] = named[2].strip()
        elif name:
            found[name] = f"{found[name]} {text}".strip()
    return found


def _sphinx(lines: list[str]) -> dict[str, str]:
    """Parse `:param x: text` and `:param int x: text`; indented lines continue the text."""
    found: dict[str, str] = {}
    name = None
    for line in lines:
        if field := _SPHINX.match(line):
            words = (field[2] or "").split()
            name = words[-1].lstrip("*") if field[1] in ("param", "parameter") and words else None
            if name:
                found[name] = field[3].strip()
        elif name and line[:1].isspace() and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
        else:
            name = None
    return found
