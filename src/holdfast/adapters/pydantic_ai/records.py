"""Converts the records of conversations to events, and back. Pure."""

from __future__ import annotations

import json

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_core import PydanticSerializationError

from ...errors import InvalidValue
from ...log.events import Event, NewEvent
from ..json_values import as_text, storable
from .json_messages import lean, lean_usage

RECORD = "pydantic_ai.record"

_ADAPTER = TypeAdapter(ConversationRecord)


def to_event(record: ConversationRecord) -> NewEvent:
    """Convert a record to an event. Raises `InvalidValue` if the SDK cannot serialise it."""
    try:
        made = _ADAPTER.dump_python(record, mode="json")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidValue(
            field="record",
            problem=f"contains a value that pydantic-ai cannot serialise ({error})",
            remedy="use JSON values as metadata of deferred tool calls",
        ) from error
    made = {**lean(record, made), "usage": lean_usage(record.usage, made["usage"])}
    if not storable(made):
        return NewEvent(kind=RECORD, data=as_text(made))
    return NewEvent.of(RECORD, {"record": made})


def from_event(event: Event) -> ConversationRecord | None:
    """Return the record in an event, or None if it was erased or cannot be read."""
    data = event.json()
    made = json.loads(data["text"]) if "text" in data else data.get("record")
    try:
        return None if made is None else _ADAPTER.validate_python(made)
    except ValidationError:
        return None
