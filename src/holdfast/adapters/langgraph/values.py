"""Encodes the values of channels as JSON, and decodes them. Pure.

A code is a JSON object with one field, whose name is the form of the value: `json` (the value
itself), `text` (a JSON value that stores reject, as text), `message` (the fields of a LangChain
message), `message_text` (the same as text, because stores reject some of them), `list`, `tuple` and
`map` (the codes of the items), `send` and `interrupt` (objects of LangGraph), and `typed` (any
other value, as the serializer encodes it: a name, and bytes in base64).
"""

from __future__ import annotations

import base64
import json
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send

from ...log.codec import too_deep
from ..json_values import DEEPEST, UNEQUAL, is_json, storable, stored
from .fields import fields_of, has_fields, message_of

Code: TypeAlias = dict[str, Any]

NESTED = 12  # levels of containers that are encoded item by item


class Codec:
    """Encodes and decodes values. LangGraph's default serializer is used only for values that JSON
    cannot represent; any other serializer, for example one that encrypts, is used for all."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self.plain = type(serde) is JsonPlusSerializer

    def encode(self, value: Any) -> Code:
        return (self._plain(value, 0) if self.plain else None) or self._typed(value)

    def is_code_of(self, code: Code, value: Any) -> bool:
        """Return whether `code` is the code of a value. This is faster for messages than to encode
        them."""
        fields = code.get("message")
        if fields is not None and has_fields(value, fields):
            return True
        return self.encode(value) == code

    def decode(self, code: Code) -> Any:
        ((form, content),) = code.items()
        match form:
            case "json":
                return copied(content)
            case "text":
                return json.loads(content)
            case "message":
                return message_of(copied(content))
            case "message_text":
                return message_of(json.loads(content))
            case "list":
                return [self.decode(item) for item in content]
            case "tuple":
                return tuple(self.decode(item) for item in content)
            case "map":
                return {key: self.decode(item) for key, item in content.items()}
            case "send":
                return Send(content[0], self.decode(content[1]))
            case "interrupt":
                return Interrupt(value=self.decode(content[0]), id=content[1])
        name, data = content
        return self._serde.loads_typed((name, base64.b64decode(data)))

    def _typed(self, value: Any) -> Code:
        name, data = self._serde.dumps_typed(value)
        return {"typed": [name, base64.b64encode(data).decode()]}

    def _plain(self, value: Any, depth: int) -> Code | None:
        """Return the code of a value, or None if only the serializer can encode it."""
        if is_json(value):
            return _json(value)
        if depth == NESTED:
            return None
        made = type(value)
        if made is list or made is tuple:
            return {made.__name__: [self._item(item, depth) for item in value]}
        if made is dict and all(type(key) is str and storable(key) for key in value):
            return {"map": {key: self._item(item, depth) for key, item in value.items()}}
        if isinstance(value, BaseMessage):
            return _message(value)
        if made is Interrupt and value == Interrupt(value=value.value, id=value.id):
            return {"interrupt": [self._item(value.value, depth), value.id]}
        if made is Send and value == Send(value.node, value.arg):
            return {"send": [value.node, self._item(value.arg, depth)]}
        return None

    def _item(self, value: Any, depth: int) -> Code:
        return self._plain(value, depth + 1) or self._typed(value)


def _message(message: BaseMessage) -> Code | None:
    fields = fields_of(message)
    code = None if fields is None else _json(fields)
    if code is None:
        return None
    return {"message": code["json"]} if "json" in code else {"message_text": code["text"]}


def copied(value: Any) -> Any:
    """Return a copy of a JSON value with new lists and dicts, because a graph may change those that
    it receives, and the originals stay in memory."""
    made = type(value)
    if made is dict:
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if made is list else value


def _json(value: Any) -> Code | None:
    found = stored(value)
    if found is not UNEQUAL:
        return {"json": found}
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        return None
    return None if too_deep(text.encode(), DEEPEST) else {"text": text}
