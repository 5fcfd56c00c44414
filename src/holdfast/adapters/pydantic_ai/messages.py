"""Converts the SDK's messages to events, and back. Pure.

A user prompt or a response becomes one native event. A request with tool results becomes one native
event for each of its parts, and a last event `pydantic_ai.message`. A message without a native
equivalent becomes `pydantic_ai.item`. The id of a message's last event is derived from the id of
the message's entry, so that an entry is found without a search. The field `pydantic_ai` contains
the data that the native fields do not contain, or `true` if there is no such data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...log.codec import check_name
from ...log.events import Event, NewEvent
from ..json_values import as_text, is_call_id, parsed, storable
from .json_messages import Json

FIELD = "pydantic_ai"
ITEM = "pydantic_ai.item"
TEXT = "pydantic_ai.item.text"  # JSON that stores reject, as text in the string `text`
MESSAGE = "pydantic_ai.message"  # a message whose parts are the native events before it
NATIVE = ("message.received", "message.completed", "tool.finished")
ENDS = ("message.received", "message.completed", ITEM, TEXT, MESSAGE)

PREFIX = "pydantic_ai.entry:"  # prefix of the id of a message's last event
PART = "pydantic_ai.part:"  # prefix of the ids of the message's other events
LONGEST = 480  # bytes of the longest entry id that an event id can contain
MOST = 900  # the most native events for one message

CALL = ("tool_name", "tool_call_id", "args")  # fields of a call that the native event contains
RESULT = ("tool_call_id", "content")
OUTCOMES = {"failed": "failed", "retried": "failed", "denied": "denied", "interrupted": "cancelled"}
ORDER = ("thinking", "text", "tool-call")  # default order of the parts of a response


def entry_event(entry: str) -> str:
    """Return the id of the last event of the message with this entry id."""
    check_name("entry", entry, limit=1 << 16)
    if len(entry.encode()) <= LONGEST:
        return PREFIX + entry
    return f"{PREFIX}sha256:{hashlib.sha256(entry.encode()).hexdigest()}"


# To events


def to_events(entry: str, message: Json) -> list[NewEvent]:
    """Convert a message to events, which must be appended together."""
    id = entry_event(entry)
    if id != PREFIX + entry:
        message = {**message, "entry": entry}
    if not storable(message):
        return [NewEvent(kind=TEXT, data=as_text(message), id=id)]
    made = (_response if message["kind"] == "response" else _request)(id, message)
    return made or [NewEvent.of(ITEM, {FIELD: message}, id=id)]


def _response(id: str, message: Json) -> list[NewEvent] | None:
    parts: list[Json] = message["parts"]
    texts, thoughts, calls = (
        [part for part in parts if part["part_kind"] == kind]
        for kind in ("text", "thinking", "tool-call")
    )
    ids = [call["tool_call_id"] for call in calls]
    if not (texts or thoughts or calls) or not all(map(is_call_id, ids)) or len({*ids}) < len(ids):
        return None
    rest = _without(message, "kind", "parts", "model_name", "finish_reason", "usage")
    usage = message["usage"]
    counted = {name: count for name, count in usage.items() if type(count) is int}
    if uncounted := _without(usage, *counted):
        rest["usage"] = uncounted
    data: Json = {}
    if texts:
        data["text"] = "".join(part["content"] for part in texts)
    if calls:
        data["calls"] = [_call(call) for call in calls]
    if thoughts:
        data["thought"] = "\n\n".join(part["content"] for part in thoughts)
    for name, value in (("model", message.get("model_name")), ("usage", counted)):
        if value:
            data[name] = value
    if "finish_reason" in message:
        data["reason"] = message["finish_reason"]
    left = [_left(part, len(texts), len(thoughts)) for part in parts]
    if left != [{"part_kind": kind} for kind in _natural(data)]:
        rest["parts"] = left
    return [NewEvent.of("message.completed", {**data, FIELD: _mark(rest)}, id=id)]


def _call(part: Json) -> Json:
    args = part.get("args")
    arguments = {} if args is None else parsed(args) if isinstance(args, str) else args
    return {"id": part["tool_call_id"], "name": part["tool_name"], "arguments": arguments}


def _left(part: Json, texts: int, thoughts: int) -> Json:
    """Return the data of a part of a response that the native fields do not contain."""
    kind = part["part_kind"]
    if (kind, texts) == ("text", 1) or (kind, thoughts) == ("thinking", 1):
        return _without(part, "content")
    if kind != "tool-call":
        return part
    left = _without(part, *CALL)
    args = part.get("args")
    if isinstance(args, str) and args == msgspec.json.encode(parsed(args)).decode():
        left["encoded"] = True
    elif not isinstance(args, dict):
        left["args"] = args
    return left


def _natural(data: Json) -> list[str]:
    """Return the kinds of the parts that a response with these native fields has by default, in
    order."""
    counts = ("thought" in data, "text" in data, len(data.get("calls", ())))
    return [kind for kind, count in zip(ORDER, counts, strict=True) for _ in range(count)]


def _request(id: str, message: Json) -> list[NewEvent] | None:
    natives: list[tuple[str, Json]] = []
    left: list[Json] = []
    for part in message["parts"]:
        native, others = _native(part)
        if native is None:
            left.append(part)
        else:
            left.append({**others, "event": len(natives)})
            natives.append(native)
    rest = _without(message, "kind", "parts")
    if not natives or len(natives) > MOST:
        return None
    if [kind for kind, _ in natives] == ["message.received"]:
        (_, data), parts = natives[0], [_without(part, "event") for part in left]
        if parts != [{"part_kind": "user-prompt"}]:
            rest["parts"] = parts
        return [NewEvent.of("message.received", {**data, FIELD: _mark(rest)}, id=id)]
    name = hashlib.sha256(id.encode()).hexdigest()[:32]
    events = [
        NewEvent.of(kind, {**data, FIELD: True}, id=_part_event(f"{name}.{number}", kind, data))
        for number, (kind, data) in enumerate(natives)
    ]
    end = {"events": len(events), FIELD: {**rest, "parts": left}}
    return [*events, NewEvent.of(MESSAGE, end, id=id)]


def _part_event(name: str, kind: str, data: Json) -> str:
    # The id contains the call's id, even after the data is erased, and differs for equal calls.
    return f"redone:{name}:{data['call']}" if kind == "tool.finished" else PART + name


def _native(part: Json) -> tuple[tuple[str, Json] | None, Json]:
    """Return the kind and data of the native event for a part of a request, or None if there is no
    native equivalent; and the data of the part that the native event does not contain."""
    kind, content = part["part_kind"], part.get("content")
    if kind == "user-prompt":
        if isinstance(content, str):
            return ("message.received", {"text": content}), _without(part, "content")
        text = _text(content)
        return (None if text is None else ("message.received", {"text": text})), part
    answers = kind == "tool-return" or (kind == "retry-prompt" and "tool_name" in part)
    if not answers or not is_call_id(part["tool_call_id"]):
        return None, part
    data: Json = {"call": part["tool_call_id"], "result": content}
    outcome = "failed" if kind == "retry-prompt" else OUTCOMES.get(part.get("outcome", ""))
    if outcome is not None:
        data["outcome"] = outcome
    if part.get("content_file_digests") and (text := _text(content)) is not None:
        data["content"] = text
    return ("tool.finished", data), _without(part, *RESULT)


def _text(content: Any) -> str | None:
    """Return the text in the content of a part, or None if there is no text."""
    items = content if isinstance(content, list) else [content]
    texts = [each if isinstance(each, str) else _text_content(each) for each in items]
    found = [text for text in texts if text is not None]
    return "".join(found) if found else None


def _text_content(item: Any) -> str | None:
    content = item.get("content") if isinstance(item, dict) else None
    return content if isinstance(content, str) else None


def _without(fields: Mapping[str, Any], *names: str) -> Json:
    return {name: value for name, value in fields.items() if name not in names}


def _mark(rest: Json) -> Any:
    return rest or True


# From events


def parts_before(event: Event) -> int:
    """Return how many events directly before the last event of a message belong to the message."""
    count = event.json().get("events") if event.kind == MESSAGE else 0
    return count if isinstance(count, int) else 0


def is_end(event: Event) -> bool:
    """Return whether an event is the last event of a message that this adapter wrote."""
    return event.kind in ENDS and event.id.startswith(PREFIX)


def message_of(event: Event, before: Mapping[int, Event]) -> tuple[str, Json] | None:
    """Return the entry's id and the message whose last event is `event`. `before` contains the
    events before it, by number. Returns None if the message was erased."""
    data = event.json()
    if event.kind == TEXT:
        text = data.get("text")
        made = None if text is None else json.loads(text)
    elif event.kind == ITEM:
        made = data.get(FIELD)
    elif FIELD not in data:
        made = None
    else:
        rest = {} if data[FIELD] is True else dict(data[FIELD])
        if event.kind == "message.completed":
            made = _made_response(data, rest)
        elif event.kind == "message.received":
            made = _made_prompt(data, rest)
        else:
            made = _made_request(event, data, rest, before)
    if made is None:
        return None
    return made.pop("entry", event.id.removeprefix(PREFIX)), made


def _made_response(data: Json, rest: Json) -> Json:
    calls = iter(data.get("calls", ()))
    parts = []
    for left in rest.pop("parts", [{"part_kind": kind} for kind in _natural(data)]):
        part = dict(left)
        kind = part["part_kind"]
        if kind == "tool-call":
            call = next(calls)
            part |= {"tool_name": call["name"], "tool_call_id": call["id"]}
            if part.pop("encoded", False):
                part["args"] = msgspec.json.encode(call["arguments"]).decode()
            part.setdefault("args", call["arguments"])
        elif kind in ("text", "thinking") and "content" not in part:
            part["content"] = data["text" if kind == "text" else "thought"]
        parts.append(part)
    usage = {**data.get("usage", {}), **rest.pop("usage", {})}
    made = {**rest, "kind": "response", "parts": parts, "usage": usage}
    for name, own in (("model", "model_name"), ("reason", "finish_reason")):
        if name in data:
            made[own] = data[name]
    return made


def _made_prompt(data: Json, rest: Json) -> Json:
    parts = [dict(part) for part in rest.pop("parts", [{"part_kind": "user-prompt"}])]
    for part in parts:
        if part["part_kind"] == "user-prompt":
            part.setdefault("content", data["text"])
    return {**rest, "kind": "request", "parts": parts}


def _made_request(event: Event, data: Json, rest: Json, before: Mapping[int, Event]) -> Json | None:
    first = event.seq - data["events"]
    parts = []
    for left in rest.pop("parts"):
        part = dict(left)
        if (number := part.pop("event", None)) is not None:
            native = before[first + number].json() if first + number in before else {}
            if FIELD not in native:
                continue  # erased, or damaged
            if part["part_kind"] == "user-prompt":
                part.setdefault("content", native["text"])
            else:
                part |= {"tool_call_id": native["call"], "content": native["result"]}
        parts.append(part)
    return {**rest, "kind": "request", "parts": parts} if parts else None


# Messages for the events of other writers


def user_message(text: str, at: str) -> Json:
    part = {"part_kind": "user-prompt", "content": text, "timestamp": at}
    return {"kind": "request", "parts": [part], "timestamp": at}


def response(text: str, calls: Sequence[tuple[str, str, Any]], at: str) -> Json:
    parts: list[Json] = [{"part_kind": "text", "content": text}] if text else []
    parts += [
        {"part_kind": "tool-call", "tool_name": name, "tool_call_id": id, "args": arguments}
        for id, name, arguments in calls
    ]
    return {"kind": "response", "parts": parts, "timestamp": at}


def tool_return(call: str, name: str, content: str, outcome: str, at: str) -> Json:
    part = {"part_kind": "tool-return", "tool_name": name, "tool_call_id": call}
    part |= {"content": content, "outcome": outcome, "timestamp": at}
    return {"kind": "request", "parts": [part], "timestamp": at}
