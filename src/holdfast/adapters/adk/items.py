"""Conversion of ADK's events, as JSON objects, to events of the log and back. Pure.

An event of ADK with a native equivalent becomes a native event, which every reader of the log
understands; the outputs of several tools become one event each. The field `adk` of the first one
contains what its other fields do not say about ADK's event; the others have `part` there. An event
without a native equivalent becomes an event `adk.item`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Sequence
from typing import Any

import msgspec

from ...log.events import Event, NewEvent
from ..json_values import as_text, is_call_id, storable

FIELD = "adk"  # of a native event, and of `adk.item`
PART = "part"  # value of the field in all native events of an event but the first
ITEM = "adk.item"
TEXT = "adk.item.text"  # JSON that stores reject, as text in the string `text`
NATIVE = ("message.received", "message.completed", "tool.finished")

# Entries of the field that are not fields of ADK's event
PARTS = "parts"  # what the parts of the content have beyond the native fields
NAMES = "names"  # of the tools whose outputs these are
STATE = "state"  # the number of the last event with state before these

FOLLOWS = 0  # in place of that number: the event with state is the next one

Fields = dict[str, Any]  # of ADK's event, as JSON; fields that are None are left out

_ACTIONS = (
    "state_delta",
    "artifact_delta",
    "requested_auth_configs",
    "requested_tool_confirmations",
)
_DEFAULTS = {"node_info": {"path": ""}, "actions": {name: {} for name in _ACTIONS}}
_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MARKED = b'"adk":'


def short(id: str) -> str:
    """Return the part of event ids that names an event of ADK."""
    if _SAFE.fullmatch(id):
        return id
    return "#" + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# To events


def to_events(fields: Fields, *, state: int, interim: Container[str] = ()) -> list[NewEvent]:
    """Return the events of an event of ADK. `state` is the number of the last event with state; if
    it is `FOLLOWS`, the state is left to that event. The tool outputs for the calls in `interim`
    are not final."""
    if not storable(fields):
        return [NewEvent(kind=TEXT, data=as_text(fields), id=f"adk:{short(fields['id'])}")]
    if state == FOLLOWS:
        fields = with_delta(fields, {})
    made = _user_message(fields) or _outputs(fields, interim) or _answer(fields)
    if made is None:
        data = {FIELD: fields, STATE: state}
        return [NewEvent.of(ITEM, data, id=f"adk:{short(fields['id'])}")]
    kind, natives, mark = made
    left = _rest(fields, _told(kind, natives, mark, short(fields["id"])))
    left = {name: value for name, value in left.items() if value != _DEFAULTS.get(name, ...)}
    content = left.get("content")
    if content is not None and (parts := _part_marks(kind, natives, mark, content)) is not None:
        del left["content"]
        mark[PARTS] = parts
    mark |= left
    mark[STATE] = state
    marks = [mark, *[PART] * (len(natives) - 1)]
    return [
        NewEvent.of(kind, {**data, FIELD: each}, id=_event_id(kind, data, fields["id"]))
        for data, each in zip(natives, marks, strict=True)
    ]


_Made = tuple[str, list[dict[str, Any]], dict[str, Any]]  # kind, data of each event, field `adk`


def _event_id(kind: str, data: dict[str, Any], id: str) -> str:
    # The id of an outcome names the call, also when the data is erased.
    return f"redone:{short(id)}:{data['call']}" if kind == "tool.finished" else f"adk:{short(id)}"


def _parts(fields: Fields) -> list[dict[str, Any]]:
    return (fields.get("content") or {}).get("parts") or []


def _user_message(fields: Fields) -> _Made | None:
    parts = _parts(fields)
    texts = [part["text"] for part in parts if "text" in part and not part.get("thought")]
    if fields.get("author") != "user" or not "".join(texts):
        return None
    if fields["content"].get("role", "user") != "user" or _has(parts, "function_response"):
        return None
    return "message.received", [{"text": "".join(texts)}], {}


def _outputs(fields: Fields, interim: Container[str]) -> _Made | None:
    found = [part["function_response"] for part in _parts(fields) if "function_response" in part]
    if _has(_parts(fields), "function_call"):
        return None
    if not all(is_call_id(each.get("id")) and "name" in each for each in found):
        return None
    final = [each for each in found if each["id"] not in interim]
    if not final or len({each["id"] for each in final}) < len(final):
        return None
    natives = [{"call": each["id"], "result": _result(each.get("response"))} for each in final]
    return "tool.finished", natives, {NAMES: [each["name"] for each in final]}


def _result(response: Any) -> Any:
    """Return the output of a tool. ADK wraps one that is not an object."""
    if isinstance(response, dict) and list(response) == ["result"]:
        wrapped = response["result"]
        return response if isinstance(wrapped, dict) else wrapped
    return response


def _answer(fields: Fields) -> _Made | None:
    parts = _parts(fields)
    calls = [part["function_call"] for part in parts if "function_call" in part]
    if fields.get("author") == "user" or _has(parts, "function_response"):
        return None
    if not all(is_call_id(call.get("id")) and "name" in call for call in calls):
        return None
    data: dict[str, Any] = {}
    for name, thought in (("text", False), ("thought", True)):
        texts = [p["text"] for p in parts if "text" in p and bool(p.get("thought")) is thought]
        if text := "".join(texts):
            data[name] = text
    if calls:
        data["calls"] = [
            {"id": call["id"], "name": call["name"], "arguments": call.get("args", {})}
            for call in calls
        ]
    if not data:
        return None
    used = fields.get("usage_metadata", {})
    counts = used.get("prompt_token_count"), used.get("candidates_token_count")
    if all(type(count) is int and 0 <= count < 1 << 53 for count in counts):
        data["usage"] = {"input_tokens": counts[0], "output_tokens": counts[1]}
    if model := fields.get("model_version"):
        data["model"] = model
    return "message.completed", [data], {}


def _has(parts: Sequence[dict[str, Any]], name: str) -> bool:
    return any(name in part for part in parts)


def _rest(fields: Any, told: dict[str, Any]) -> dict[str, Any]:
    """Return what an object has beyond `told`; None for what it lacks."""
    left = {name: value for name, value in fields.items() if told.get(name, ...) != value}
    return left | {name: None for name in told if name not in fields}


def _with(told: dict[str, Any], left: dict[str, Any]) -> dict[str, Any]:
    """Return an object again from what is told and `_rest`."""
    return {name: value for name, value in {**told, **left}.items() if value is not None}


def _part_marks(
    kind: str, natives: list[dict[str, Any]], mark: dict[str, Any], content: Any
) -> list[dict[str, Any]] | None:
    """Return what each part has beyond the native fields, or None if the parts are others."""
    told = _told_parts(kind, natives, mark)
    parts = content.get("parts") or []
    if content != {"parts": parts, "role": _role(kind)} or len(parts) != len(told):
        return None
    if not all(name in part for part, known in zip(parts, told, strict=True) for name in known):
        return None
    return [_rest(part, known) for part, known in zip(parts, told, strict=True)]


# From events


def _role(kind: str) -> str:
    return "model" if kind == "message.completed" else "user"


def _told(kind: str, natives: Sequence[dict[str, Any]], mark: dict[str, Any], id: str) -> Fields:
    """Return the fields of an event of ADK that native events tell."""
    parts = _told_parts(kind, natives, mark)
    if PARTS in mark:
        parts = [_with(part, left) for part, left in zip(parts, mark[PARTS], strict=True)]
    fields: Fields = {"content": {"parts": parts, "role": _role(kind)}, "id": id}
    if kind == "message.received":
        fields["author"] = "user"
    elif kind == "message.completed":
        data = natives[0]
        if "model" in data:
            fields["model_version"] = data["model"]
        if "usage" in data:
            counts = data["usage"]["input_tokens"], data["usage"]["output_tokens"]
            names = ("prompt_token_count", "candidates_token_count", "total_token_count")
            fields["usage_metadata"] = dict(zip(names, (*counts, sum(counts)), strict=True))
    return fields


def _told_parts(
    kind: str, natives: Sequence[dict[str, Any]], mark: dict[str, Any]
) -> list[dict[str, Any]]:
    if kind == "tool.finished":
        return [
            {"function_response": {"id": data["call"], "name": name, "response": _response(data)}}
            for data, name in zip(natives, mark[NAMES], strict=True)
        ]
    data = natives[0]
    parts: list[dict[str, Any]] = []
    if "thought" in data:
        parts.append({"text": data["thought"], "thought": True})
    if "text" in data:
        parts.append({"text": data["text"]})
    for call in data.get("calls", []):
        named = {"id": call["id"], "args": call["arguments"], "name": call["name"]}
        parts.append({"function_call": named})
    return parts


def _response(data: dict[str, Any]) -> Any:
    result = data["result"]
    return result if isinstance(result, dict) else {"result": result}


def with_delta(fields: Fields, delta: dict[str, Any]) -> Fields:
    """Return an event of ADK with other changes of the state."""
    return {**fields, "actions": {**fields.get("actions", {}), "state_delta": delta}}


def own_data(event: NewEvent) -> dict[str, Any] | None:
    """Return the data of an event that this adapter wrote, other than one with state; None for the
    events of other writers, and for native events that were erased."""
    if event.kind in NATIVE:
        if _MARKED not in bytes(event.data):
            return None
    elif event.kind not in (ITEM, TEXT):
        return None
    data = msgspec.json.decode(event.data)
    if not isinstance(data, dict) or (event.kind in NATIVE and FIELD not in data):
        return None
    return data


def is_part(event: NewEvent, data: dict[str, Any]) -> bool:
    """Return whether an event of this adapter continues the one before it."""
    return event.kind in NATIVE and data[FIELD] == PART


def mark_of(event: NewEvent, data: dict[str, Any]) -> dict[str, Any]:
    """Return what the first event of an event of ADK says beside its native fields."""
    mark = data[FIELD] if event.kind in NATIVE else data
    return mark if isinstance(mark, dict) else {}


def fields_of(head: NewEvent, every: Sequence[dict[str, Any]]) -> Fields | None:
    """Return ADK's event from the data of its events, the first of which is `head`; None if one of
    them was erased."""
    data = every[0]
    if head.kind == TEXT:
        return json.loads(data["text"]) if "text" in data else None
    if head.kind == ITEM:
        return data.get(FIELD)
    mark = mark_of(head, data)
    if len(every) != len(mark.get(NAMES, [None])):
        return None
    known = {name: value for name, value in mark.items() if name not in (PARTS, NAMES, STATE)}
    id = head.id.split(":", 2)[1]
    return _with(_told(head.kind, every, mark, id), known)


# Events of ADK for the messages of other writers


def foreign_fields(
    event: Event, author: str, role: str, parts: list[dict[str, Any]], invocation: str
) -> Fields:
    content = {"parts": parts, "role": role}
    named = {"author": author, "invocation_id": invocation, "id": event.id}
    return {"content": content, **named, "timestamp": event.at / 1000}


def text_part(text: str) -> dict[str, Any]:
    return {"text": text}


def call_part(id: str, name: str, arguments: Any) -> dict[str, Any]:
    args = arguments if isinstance(arguments, dict) else {"arguments": arguments}
    return {"function_call": {"id": id, "name": name, "args": args}}


def output_part(call: str, name: str, output: str) -> dict[str, Any]:
    return {"function_response": {"id": call, "name": name, "response": {"result": output}}}
