"""Converts the SDK's items to events, and back. Pure.

An item with a native equivalent becomes a native event, which every reader of the log understands.
The field `openai` of the event contains what is needed to restore the item: `true` if the native
fields alone restore the same JSON text, the item's id if the native fields and the id restore it,
and otherwise the item itself. Successive items of one answer (reasoning, text, tool calls) become
one event, whose field is then a list, or `true` if it is `true` for all of them. An item without a
native equivalent becomes an event `openai.item`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ...log.events import NewEvent, new_id, to_json
from ..json_values import as_text, is_call_id, parsed, storable

Item: TypeAlias = Any  # an item of the SDK: a JSON object

FIELD = "openai"  # field of native events and of `openai.item`
ITEM = "openai.item"
TEXT = "openai.item.text"  # JSON that stores reject, as text in the string `text`
NATIVE = ("message.received", "message.completed", "tool.finished")
KINDS = (*NATIVE, ITEM, TEXT)

REASONING, MESSAGE, CALL = range(3)  # parts of an answer, in their order in a native event


class AnswerPart(Struct, frozen=True):
    """An item of a model's answer: its type, its content for the native event, and the value that
    restores the item."""

    part: int
    content: Any
    mark: Any


# To events


def to_events(items: Iterable[Item]) -> list[NewEvent]:
    """Convert items to events, in order. Raises `InvalidValue` for values that are not JSON."""
    events: list[NewEvent] = []
    answer: list[AnswerPart] = []
    for item in items:
        part = _answer_part(item) if storable(item) else None
        if answer and (part is None or not _continues(answer[-1], part)):
            events.append(_answer(answer))
            answer = []
        if part is None:
            events.append(_event(item))
        else:
            answer.append(part)
    if answer:
        events.append(_answer(answer))
    return events


def _event(item: Item) -> NewEvent:
    if not storable(item):
        return NewEvent(kind=TEXT, data=as_text(item))
    return _user_message(item) or _tool_output(item) or NewEvent.of(ITEM, {FIELD: item})


def _user_message(item: Item) -> NewEvent | None:
    if not _is_message(item, "user"):
        return None
    text = _text(item.get("content"), "input_text")
    if text is None:
        return None
    return NewEvent.of(
        "message.received", {"text": text, FIELD: _mark(item, _plain_message("user", text))}
    )


def _tool_output(item: Item) -> NewEvent | None:
    if not isinstance(item, dict) or item.get("type") != "function_call_output":
        return None
    call, output = item.get("call_id"), item.get("output")
    if not isinstance(call, str) or not is_call_id(call) or "output" not in item:
        return None
    data = {"call": call, "result": output, FIELD: _mark(item, _plain_output(call, output))}
    if isinstance(output, list) and (text := _text(output, "input_text")):
        data["content"] = text
    # The id contains the call's id, even after the data is erased, and is new for each event.
    return NewEvent.of("tool.finished", data, id=f"redone:{new_id()}:{call}")


def _answer_part(item: Item) -> AnswerPart | None:
    if not isinstance(item, dict):
        return None
    match item.get("type"):
        case "function_call":
            return _call_part(item)
        case "reasoning":
            return AnswerPart(REASONING, _thought(item), item)
    if not _is_message(item, "assistant"):
        return None
    text = _text(item.get("content"), "output_text")
    if text is None:
        return None
    plain = _plain_message("assistant", text)
    return AnswerPart(MESSAGE, text, _mark(item, plain, _full_message(item.get("id"), text)))


def _call_part(item: dict[str, Any]) -> AnswerPart | None:
    id, name, arguments = item.get("call_id"), item.get("name"), item.get("arguments")
    if not is_call_id(id) or not isinstance(name, str) or not isinstance(arguments, str):
        return None
    call = {"id": id, "name": name, "arguments": parsed(arguments)}
    return AnswerPart(CALL, call, _mark(item, _plain_call(call), _full_call(item.get("id"), call)))


def _continues(last: AnswerPart, next: AnswerPart) -> bool:
    return next.part > last.part or next.part == last.part != MESSAGE


def _answer(parts: list[AnswerPart]) -> NewEvent:
    data: dict[str, Any] = {}
    for part in parts:
        if part.part == MESSAGE:
            data["text"] = part.content
    if calls := [part.content for part in parts if part.part == CALL]:
        data["calls"] = calls
    if thought := "\n\n".join(p.content for p in parts if p.part == REASONING and p.content):
        data["thought"] = thought
    marks = [part.mark for part in parts]
    every = all(mark is True for mark in marks)
    data[FIELD] = True if every else marks[0] if len(marks) == 1 else marks
    return NewEvent.of("message.completed", data)


def _mark(item: Item, plain: Any, full: Any = None) -> Any:
    """Return the value of the field `openai` for an item. `plain` and `full` are the items that can
    be restored from the native fields, without and with the item's id."""
    data = bytes(to_json(item))
    if data == bytes(to_json(plain)):
        return True
    if isinstance(item.get("id"), str) and data == bytes(to_json(full)):
        return item["id"]
    return item


def _is_message(item: Item, role: str) -> bool:
    if not isinstance(item, dict) or item.get("role") != role:
        return False
    return bool(item.get("type", "message") == "message")


def _text(content: Any, type: str) -> str | None:
    """Return the text of an item's content, or None if the content has no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [
        part["text"]
        for part in content
        if isinstance(part, dict) and part.get("type") == type and isinstance(part.get("text"), str)
    ]
    return "".join(texts) if texts else None


def _thought(item: dict[str, Any]) -> str:
    summary = item.get("summary")
    parts = summary if isinstance(summary, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


# The SDK's usual forms of items


def _plain_message(role: str, text: str) -> Item:
    return {"content": text, "role": role}


def _full_message(id: Any, text: str) -> Item:
    content = {"annotations": [], "text": text, "type": "output_text", "logprobs": []}
    item = {"id": id, "content": [content], "role": "assistant"}
    return {**item, "status": "completed", "type": "message"}


def _plain_call(call: dict[str, Any]) -> Item:
    arguments = msgspec.json.encode(call["arguments"]).decode()
    item = {"arguments": arguments, "call_id": call["id"], "name": call["name"]}
    return {**item, "type": "function_call"}


def _full_call(id: Any, call: dict[str, Any]) -> Item:
    return {**_plain_call(call), "id": id, "status": "completed"}


def _plain_output(call: str, output: Any) -> Item:
    return {"call_id": call, "output": output, "type": "function_call_output"}


# From events


def items_of(event: NewEvent) -> list[Item] | None:
    """Restore the items of an event that this adapter wrote, as new objects. Returns None for
    erased events and for events of other writers."""
    if event.kind == TEXT:
        data = _data(event)
        text = data.get("text") if isinstance(data, dict) else None
        return None if text is None else [json.loads(text)]
    if event.kind not in KINDS or b'"openai":' not in bytes(event.data):
        return None
    data = _data(event)
    if not isinstance(data, dict) or FIELD not in data:
        return None
    mark = data[FIELD]
    if event.kind == ITEM:
        return [mark]
    if event.kind == "message.completed":
        return _answer_items(data, mark)
    if mark is not True:
        return [mark]
    if event.kind == "message.received":
        return [_plain_message("user", data["text"])]
    return [_plain_output(data["call"], data["result"])]


def _data(event: NewEvent) -> Any:
    return msgspec.json.decode(event.data)


def _answer_items(data: dict[str, Any], mark: Any) -> list[Item]:
    parts: list[Any] = [data["text"]] if "text" in data else []
    parts += data.get("calls", [])
    marks = [True] * len(parts) if mark is True else mark if isinstance(mark, list) else [mark]
    items, left = [], iter(parts)
    for each in marks:
        if isinstance(each, dict):
            if each.get("type") != "reasoning":
                next(left, None)
            items.append(each)
        else:
            items.append(_rebuilt(next(left), each if isinstance(each, str) else None))
    return items


def _rebuilt(part: Any, id: str | None) -> Item:
    if isinstance(part, str):
        return _plain_message("assistant", part) if id is None else _full_message(id, part)
    return _plain_call(part) if id is None else _full_call(id, part)


# Items for the messages of other writers


def user_item(text: str) -> Item:
    return _plain_message("user", text)


def assistant_item(text: str) -> Item:
    return _plain_message("assistant", text)


def call_item(id: str, name: str, arguments: Any) -> Item:
    return _plain_call({"id": id, "name": name, "arguments": arguments})


def output_item(call: str, output: str) -> Item:
    return _plain_output(call, output)
