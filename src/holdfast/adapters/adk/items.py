"""Converts ADK events, as JSON objects, to events of the log and back. Pure.

An ADK event with a native equivalent becomes a native event, which every reader of the log
understands. An ADK event with outputs of several tools becomes one native event for each output.
The field `adk` of the first native event contains the data of the ADK event that the native fields
do not contain; in the other native events, the field is `part`. An ADK event without a native
equivalent becomes an event `adk.item`.
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

FIELD = "adk"  # field of native events and of `adk.item`
PART = "part"  # value of the field in all native events of an ADK event except the first
ITEM = "adk.item"
TEXT = "adk.item.text"  # JSON that stores reject, as text in the string `text`
NATIVE = ("message.received", "message.completed", "tool.finished")

# Keys in the field that are not fields of ADK events
PARTS = "parts"  # data of the content's parts that the native fields do not contain
NAMES = "names"  # the names of the tools of these outputs
STATE = "state"  # the number of the last event with state before this one

FOLLOWS = 0  # used instead of that number if the event with state is the next one

Fields = dict[str, Any]  # the fields of an ADK event as JSON, without those that are None

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
    """Return an ADK event's id for use in ids of log events: the id itself if it is short and has
    only safe characters, otherwise a hash of it."""
    if _SAFE.fullmatch(id):
        return id
    return "#" + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# To events


def to_events(fields: Fields, *, state: int, interim: Container[str] = ()) -> list[NewEvent]:
    """Convert an ADK event to log events. `state` is the number of the last event with state; if it
    is `FOLLOWS`, the state is in the next log event, and is omitted here. The tool outputs for the
    calls in `interim` are not final."""
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
    # The id of an outcome contains the id of the call, even after the data is erased.
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
    """Return the output of a tool. ADK wraps an output that is not an object in a dict; the wrapper
    is removed."""
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
    """Return the fields that `told` does not contain with the same value. A field that is only in
    `told` becomes None."""
    left = {name: value for name, value in fields.items() if told.get(name, ...) != value}
    return left | {name: None for name in told if name not in fields}


def _with(told: dict[str, Any], left: dict[str, Any]) -> dict[str, Any]:
    """Restore an object from `told` and the result of `_rest`."""
    return {name: value for name, value in {**told, **left}.items() if value is not None}


def _part_marks(
    kind: str, natives: list[dict[str, Any]], mark: dict[str, Any], content: Any
) -> list[dict[str, Any]] | None:
    """Return, for each part of the content, the fields that the native events do not contain; or
    None if the parts cannot be restored from the native events."""
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
    """Return the fields of an ADK event that its native events contain."""
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
    """Return a copy of an ADK event with other changes of the state."""
    return {**fields, "actions": {**fields.get("actions", {}), "state_delta": delta}}


def own_data(event: NewEvent) -> dict[str, Any] | None:
    """Return the data of a log event that this adapter wrote for an ADK event. None for events of
    other writers, for `adk.state` events, and for native events that were erased."""
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
    """Return whether a log event belongs to the same ADK event as the log event before it."""
    return event.kind in NATIVE and data[FIELD] == PART


def mark_of(event: NewEvent, data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an ADK event that the native fields of its first log event do not contain;
    empty if there is none."""
    mark = data[FIELD] if event.kind in NATIVE else data
    return mark if isinstance(mark, dict) else {}


def fields_of(head: NewEvent, every: Sequence[dict[str, Any]]) -> Fields | None:
    """Restore an ADK event from the data `every` of its log events, the first of which is `head`.
    Returns None if one of them was erased."""
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


# ADK events for the messages of other writers


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
