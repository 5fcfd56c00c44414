"""Checks and conversions of JSON values from an SDK. Pure."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Raw

from ..errors import InvalidValue
from ..log.codec import LIMITS, check_name, too_deep
from ..log.events import to_json

DEEPEST = 500  # nesting levels that every Python version can parse
WRAPPED = 4  # nesting levels that an event adds to a value
CALL_BYTES = 400  # the longest id of a call, which is part of an event's id
UNEQUAL = object()  # the result of `stored` for a value that stores reject or change

SCALARS = frozenset({str, int, float, bool, type(None)})
MOST = 10_000_000  # values in a tree; a list that contains itself has more


def storable(value: Any) -> bool:
    """Return whether stores accept a value and return an equal value. Lone surrogates, large
    numbers and deep nesting are not storable."""
    return stored(value) is not UNEQUAL


def stored(value: Any) -> Any:
    """Return a value as stores return it, with lists and dicts of its own; `UNEQUAL` if stores
    reject the value, or return one that differs."""
    try:
        data = bytes(to_json(value))
        if too_deep(data, LIMITS.depth - WRAPPED):
            return UNEQUAL
        found = msgspec.json.decode(data)
        return found if found == value else UNEQUAL
    except (InvalidValue, ValueError):
        return UNEQUAL


def is_json(value: Any) -> bool:
    """Return whether a value consists of the types that a JSON reader returns, without subclasses
    of them."""
    left = [value]
    seen = 0
    while left:
        item = left.pop()
        made = type(item)
        if made is list:
            left.extend(item)
        elif made is dict:
            if not all(type(key) is str for key in item):
                return False
            left.extend(item.values())
        elif made not in SCALARS:
            return False
        seen += 1
        if seen > MOST:
            return False
    return True


def as_text(value: Any) -> Raw:
    """Return event data with a value as JSON text, in the field `text`. Raises `InvalidValue` if
    the value cannot be encoded as JSON."""
    try:
        text = json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(
            field="items",
            problem=f"contain a value that cannot be encoded as JSON ({error})",
            remedy="use JSON values",
        ) from error
    if too_deep(text.encode(), DEEPEST):
        raise InvalidValue(
            field="items",
            problem=f"are nested deeper than {DEEPEST} levels",
            remedy="flatten them",
            limit=DEEPEST,
        )
    return to_json({"text": text})


def is_call_id(value: Any) -> bool:
    """Return whether a value is valid as the id of a tool call."""
    return is_name(value, limit=CALL_BYTES)


def is_name(value: Any, *, limit: int = LIMITS.name_bytes) -> bool:
    """Return whether stores accept a value as a name."""
    try:
        check_name("name", value, limit=limit)
    except InvalidValue:
        return False
    return True


def parsed(arguments: str) -> Any:
    """Parse the JSON arguments of a call. Text that is not valid JSON is returned unchanged."""
    try:
        if too_deep(arguments.encode(), LIMITS.depth - WRAPPED):
            return arguments
        value = msgspec.json.decode(arguments)
        to_json(value)
    except (ValueError, InvalidValue):
        return arguments
    return value
