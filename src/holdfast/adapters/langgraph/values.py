"""The values of channels as JSON, and back. Pure.

A code is a JSON object with one field that names the form: `json` (the value itself), `text` (JSON
that stores reject, as text), `message` (the fields of a LangChain message), `list`, `tuple` and
`map` (codes of the items), `send` and `interrupt` (of LangGraph), and `typed` (what the serializer
made of any other value: a name, and bytes in base64). `message_text` is a message with fields that
stores reject, as text.
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
from ..json_values import DEEPEST, storable
from .messages import fields_of, message_of

Code: TypeAlias = dict[str, Any]

NESTED = 12  # levels of containers that are encoded item by item
SCALARS = frozenset({str, int, float, bool, type(None)})


class Codec:
    """Encodes values. A serializer of your own, for example one that encrypts, encodes all of them;
    else it encodes only those that JSON cannot hold."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self.plain = type(serde) is JsonPlusSerializer

    def encode(self, value: Any) -> Code:
        return (self._plain(value, 0) if self.plain else None) or self._typed(value)

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


def is_json(value: Any) -> bool:
    """Whether a value has only the types that a JSON reader returns; no subclasses of them."""
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


def _message(message: BaseMessage) -> Code | None:
    fields = fields_of(message)
    code = _json(fields) if fields is not None and is_json(fields) else None
    if fields is None or code is None:
        return None
    return {"message": fields} if "json" in code else {"message_text": code["text"]}


MOST = 10_000_000  # values in a tree; a list that contains itself has more


def copied(value: Any) -> Any:
    """Return a JSON value with lists and objects of its own: a graph may change those that it has,
    and codes stay in memory."""
    made = type(value)
    if made is dict:
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if made is list else value


def _json(value: Any) -> Code | None:
    if storable(value):
        return {"json": copied(value)}
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        return None
    return None if too_deep(text.encode(), DEEPEST) else {"text": text}
