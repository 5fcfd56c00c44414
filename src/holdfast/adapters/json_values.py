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


def storable(value: Any) -> bool:
    """Return whether stores accept a value and return an equal value. Lone surrogates, large
    numbers and deep nesting are not storable."""
    try:
        data = bytes(to_json(value))
        return not too_deep(data, LIMITS.depth - WRAPPED) and msgspec.json.decode(data) == value
    except (InvalidValue, ValueError):
        return False


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
