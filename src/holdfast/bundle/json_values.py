"""Reads untrusted JSON values: each function returns the value if it has the expected type,
otherwise an empty value. Pure.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

JsonObject: TypeAlias = dict[str, Any]

# What decoding raises for bytes that are not JSON, are nested too deep, or have another type.
NOT_JSON = (msgspec.MsgspecError, ValueError, RecursionError)


def as_dict(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_str(value: Any) -> str | None:
    """Return the value if it is a string, else None."""
    return value if isinstance(value, str) else None


def as_text(value: Any) -> str | None:
    """Return the value if it is a non-empty string, else None."""
    return as_str(value) or None


def to_text(value: Any) -> str:
    """Return the value if it is a string, else its JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def first_text(*values: Any) -> str:
    """Return the first non-empty string, or ''."""
    return next((value for value in values if as_text(value)), "")
