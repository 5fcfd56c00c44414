"""Converts ADK's events and states to JSON values."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import msgspec
from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from pydantic_core import to_jsonable_python

from ...errors import InvalidValue
from .items import Fields, with_delta

log = logging.getLogger("holdfast.adapters")


def dumped(event: Event) -> Fields:
    """Return the fields of an ADK event, without temporary state. Raises `InvalidValue` if they
    cannot be encoded as JSON."""
    try:
        fields = event.model_dump(mode="json", exclude_none=True)
    except (ValueError, RecursionError) as error:
        raise _not_json("event", error) from error
    delta = fields["actions"]["state_delta"]
    if any(name.startswith(State.TEMP_PREFIX) for name in delta):
        fields = with_delta(fields, without_temp(delta))
    if _may_have_null(fields):  # the SDK writes NaN as null
        given = event.model_dump(exclude_none=True)
        given = with_delta(given, without_temp(given["actions"]["state_delta"]))
        _check_numbers("event", given)
    return fields


def plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state as JSON values, without temporary state. A value that cannot be encoded as
    JSON is replaced by its `repr`, as ADK's own services do."""
    kept = without_temp(state)
    _check_numbers("state", kept)
    try:
        return to_jsonable_python(kept)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        log.warning(
            "the state contains values that cannot be encoded as JSON; they are stored as text"
        )
    try:
        return to_jsonable_python(kept, serialize_unknown=True)  # type: ignore[no-any-return]
    except (ValueError, RecursionError) as error:
        raise _not_json("state", error) from error


def without_temp(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if not name.startswith(State.TEMP_PREFIX)}


def interim_calls(fields: Fields, session: Session) -> set[str]:
    """Return the ids of the calls whose outputs in an event are not final: calls of long-running
    tools, and of tools that need a confirmation or credentials."""
    parts = (fields.get("content") or {}).get("parts") or []
    calls = {part["function_response"].get("id") for part in parts if "function_response" in part}
    if not calls or fields.get("author") == "user":
        return set()
    actions = fields["actions"]
    found = {*actions["requested_tool_confirmations"], *actions["requested_auth_configs"]}
    for event in reversed(session.events):
        if calls & {call.id for call in event.get_function_calls()}:
            return found | (event.long_running_tool_ids or set())
    return found


def _may_have_null(fields: Fields) -> bool:
    try:
        return b"null" in msgspec.json.encode(fields)
    except (ValueError, OverflowError):
        return True


def _check_numbers(field: str, value: Any) -> None:
    """Raise `InvalidValue` for NaN and infinite numbers, which JSON does not have."""
    inside = [value]
    seen: set[int] = set()
    while inside:
        each = inside.pop()
        if isinstance(each, float) and not math.isfinite(each):
            raise InvalidValue(
                field=field,
                problem="contains NaN or infinity",
                remedy="use a string or null instead",
            )
        if isinstance(each, dict | list | tuple | set) and id(each) not in seen:
            seen.add(id(each))
            inside += each.values() if isinstance(each, dict) else each


def _not_json(field: str, error: Exception) -> InvalidValue:
    return InvalidValue(
        field=field,
        problem=f"cannot be encoded as JSON ({error})",
        remedy="use JSON values that are not nested deeply",
    )
