"""Finds all JSON values that do not have the type that a Struct declares. Pure.

msgspec itself stops at the first error. Descriptions of mismatches never contain a value.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct, UnsetType


class Mismatch(Struct, frozen=True):
    """A missing field or a value of the wrong type, with its path."""

    path: str
    problem: str
    missing: bool = False


def _dotted(path: str, name: str) -> str:
    return f"{path}.{name}"


def mismatches(
    value: Any, wanted: Any, path: str, field_path: Callable[[str, str], str] = _dotted
) -> Iterator[Mismatch]:
    """Return every mismatch in a value; `field_path` returns the path of a field."""
    inside = without_none(wanted)
    if isinstance(inside, type) and issubclass(inside, Struct) and isinstance(value, dict):
        for field in _fields(inside):
            at = field_path(path, field.encode_name)
            if field.encode_name in value:
                yield from mismatches(value[field.encode_name], field.type, at, field_path)
            elif field.required:
                yield Mismatch(at, "is missing", missing=True)
    elif typing.get_origin(inside) is list and isinstance(value, list):
        (item,) = typing.get_args(inside)
        for number, one in enumerate(value):
            yield from mismatches(one, item, f"{path}[{number}]", field_path)
    else:
        try:
            msgspec.convert(value, wanted)
        except (msgspec.ValidationError, OverflowError) as error:
            problem = str(error).partition(" - at ")[0]
            known = problem.startswith("Expected")
            yield Mismatch(path, f"e{problem[1:]}" if known else "is not an allowed value")


@functools.cache
def _fields(wanted: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(wanted)


def without_none(wanted: Any) -> Any:
    """Return the single member of a union other than None and UNSET. Any other type is returned
    unchanged."""
    if not isinstance(wanted, types.UnionType) and typing.get_origin(wanted) is not typing.Union:
        return wanted
    left = [one for one in typing.get_args(wanted) if one not in (types.NoneType, UnsetType)]
    return left[0] if len(left) == 1 else wanted
