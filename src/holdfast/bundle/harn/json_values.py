"""Values of JSON from outside: each of the expected type, or empty. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias

Tree: TypeAlias = dict[str, Any]


def as_dict(value: Any) -> Tree:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """A text that is not empty; None for other values."""
    return value if isinstance(value, str) and value else None


def first_text(*values: Any) -> str:
    """The first text that is not empty, or ''."""
    return next((value for value in values if as_text(value)), "")
