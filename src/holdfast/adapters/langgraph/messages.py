"""Converts the fields of LangChain's messages to native events, and back. Pure.

The field `langgraph` of a native event has the fields of the message that cannot be rebuilt from
the other fields of the event, or `true` if there are none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...log import events as ev
from ...log.codec import typed
from ...log.events import Event, NewEvent, new_id
from ..foreign import outcome_text
from ..json_values import is_call_id
from .fields import Fields

FIELD = "langgraph"
NATIVE = ("message.received", "message.completed", "tool.finished")
USAGE = ("input_tokens", "output_tokens")


def to_event(fields: Fields) -> NewEvent | None:
    """Return the native event of a message, or None if it has no equivalent."""
    made = {"human": _received, "ai": _completed, "tool": _finished}.get(fields["type"])
    event = None if made is None else made(fields)
    if event is None:
        return None
    kind, data, id = event
    rebuilt = _rebuilt(kind, data)
    other = {key: value for key, value in fields.items() if rebuilt.get(key) != value}
    absent = {key: None for key in rebuilt if key not in fields}
    data[FIELD] = {**absent, **other} or True
    return NewEvent.of(kind, data, id=id)


def from_event(event: Event) -> Fields | None:
    """Return the fields of the message of a native event; None if it was erased or has no
    content."""
    if event.kind not in NATIVE:
        return None
    data = event.json()
    mark = data.get(FIELD)
    if mark is None:
        return _foreign(event)
    fields = _rebuilt(event.kind, data)
    if not isinstance(mark, dict):
        return fields
    fields |= mark
    if None not in mark.values():
        return fields
    return {key: value for key, value in fields.items() if value is not None}


def _foreign(event: Event) -> Fields | None:
    """Return the fields of the message of an event that another program wrote."""
    payload = typed(event)
    id = f"holdfast:{event.seq}"
    if isinstance(payload, ev.ToolFinished):
        data = {"call": payload.call, "result": outcome_text(payload)}
        outcome = "ok" if payload.outcome == "ok" else "failed"
        return {**_rebuilt(event.kind, {**data, "outcome": outcome}), "id": id}
    if isinstance(payload, ev.MessageReceived) and payload.text:
        return {"type": "human", "content": payload.text, "id": id}
    if not isinstance(payload, ev.MessageCompleted) or not (payload.text or payload.calls):
        return None
    calls = [
        {**msgspec.to_builtins(call), "arguments": _arguments(call.arguments)}
        for call in payload.calls
    ]
    return {**_rebuilt(event.kind, {"text": payload.text, "calls": calls}), "id": id}


def _arguments(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call as a dict, which LangChain requires."""
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments is None else {"arguments": arguments}


_Native = tuple[str, dict[str, Any], str]


def _received(fields: Fields) -> _Native | None:
    text = _text(fields.get("content", ""))
    return None if text is None else ("message.received", {"text": text}, new_id())


def _completed(fields: Fields) -> _Native | None:
    calls = fields.get("tool_calls", [])
    if not all(is_call_id(call.get("id")) for call in calls):
        return None
    data: dict[str, Any] = {"text": _text(fields.get("content", "")) or ""}
    if calls:
        data["calls"] = [
            {"id": call["id"], "name": call["name"], "arguments": call["args"]} for call in calls
        ]
    usage = fields.get("usage_metadata", {})
    if used := {name: usage[name] for name in USAGE if type(usage.get(name)) is int}:
        data["usage"] = used
    return "message.completed", data, new_id()


def _finished(fields: Fields) -> _Native | None:
    call, content = fields.get("tool_call_id"), fields.get("content", "")
    if not isinstance(call, str) or not is_call_id(call):
        return None
    data = {"call": call, "result": content}
    if fields.get("status") == "error":
        data["outcome"] = "failed"
    if isinstance(content, list) and (text := _text(content)):
        data["content"] = text
    # The id names the call, also when the data is erased; equal calls have different events.
    return "tool.finished", data, f"redone:{new_id()}:{call}"


def _rebuilt(kind: str, data: dict[str, Any]) -> Fields:
    """Return the fields of a message that can be rebuilt from the native fields of its event."""
    if kind == "tool.finished":
        status = "error" if data.get("outcome") == "failed" else "success"
        return {
            "type": "tool",
            "content": data["result"],
            "tool_call_id": data["call"],
            "status": status,
        }
    if kind == "message.received":
        return {"type": "human", "content": data["text"]}
    fields = {"type": "ai", "content": data["text"]}
    if calls := data.get("calls"):
        fields["tool_calls"] = [
            {"name": c["name"], "args": c["arguments"], "id": c["id"], "type": "tool_call"}
            for c in calls
        ]
    return fields


def _text(content: Any) -> str | None:
    """Return the text of a message's content, or None if it has none."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [
        part if isinstance(part, str) else part.get("text")
        for part in parts
        if isinstance(part, str | dict)
    ]
    found = [text for text in texts if isinstance(text, str)]
    return "".join(found) if found else None
