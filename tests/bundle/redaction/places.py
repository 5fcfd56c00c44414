"""Every place of a log where a text can be: events of every kind, with a text in each of the
fields that can hold one."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import NODEFAULT
from msgspec.structs import fields

from holdfast.events import KINDS, Event, NewEvent, Payload, to_json

UUID = "0191d5a3-7b1c-7000-8000-00000000000a"


def stored(event: NewEvent, seq: int = 1, at: int = 1_700_000_000_000) -> Event:
    """The event as a log has it."""
    names = ("kind", "data", "id", "v", "run", "actor", "cause")
    return Event(seq=seq, at=at, **{name: getattr(event, name) for name in names})


def every_place(text: str) -> Iterator[Event]:
    """Events that have the text in every place, in each form that the place allows."""
    for kind, payload in KINDS.items():
        planted: dict[str, list[Any]] = {"added_later": [{"x": [text]}]}
        for field, value in _planted(payload, text):
            planted.setdefault(field, []).append(value)
        for form in range(max(map(len, planted.values()))):
            filled = {field: forms[form % len(forms)] for field, forms in planted.items()}
            yield _event(kind, {**_least(payload), **filled})
    yield _event("session.created", {"erased": text})
    yield _event("tool.finished", {"erased": text})
    yield _event("app.noted", {"deep": [{"er": {"text": text}}]})
    yield _event("app.noted", text)
    yield _event("app.noted", [[["x", text]]])
    yield _event("app.noted", {text: 1})
    yield _event("app.noted", {"schema": _schema(text)})
    yield _event("app.noted", {"environment": [{"name": "A", "value": text}]})
    yield _event("app.noted", {"headers": {"accept": text}, "url": text})
    yield _event("message.received", {"text": text}, v=99)
    yield _event("message.received", {"text": 5, "other": text})
    if "\n" not in text and len(text) < 100:
        yield _event("app." + text, {})
    if len(text) < 500:
        for name in ("id", "run", "actor", "cause"):
            yield _event("message.received", {"text": "x"}, **{name: text})
        for lead in ("in:", "settle:", "done:"):
            yield _event("message.received", {"text": "x"}, id=lead + text)


def _event(kind: str, data: Any, **more: Any) -> Event:
    return stored(NewEvent(kind=kind, data=to_json(data), **{"id": UUID, **more}))


def _schema(text: str) -> dict[str, Any]:
    about = {"type": "string", "description": text, "default": text, "examples": [text]}
    return {"type": "object", "title": text, "properties": {"password": about, "q": about}}


def _least(payload: type[Payload]) -> dict[str, Any]:
    """What the type demands."""
    return {
        field.encode_name: _some(field.type)
        for field in fields(payload)
        if field.default is NODEFAULT and field.default_factory is NODEFAULT
    }


def _some(hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is Literal:
        return typing.get_args(hint)[0]
    if origin is list:
        return []
    if isinstance(hint, type) and issubclass(hint, Payload):
        return _least(hint)
    return {str: UUID, int: 7}[hint]


def _planted(payload: type[Payload], text: str) -> Iterator[tuple[str, Any]]:
    for field in fields(payload):
        for value in _values(field.type, text):
            yield field.encode_name, value
    if payload is KINDS["message.received"]:
        yield "output", {"name": "answer", "schema": _schema(text)}
        yield "parts", [{"type": "blob", "sha256": "ab" * 32, "size": 3, "name": text}]


def _values(hint: Any, text: str) -> Iterator[Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        for each in args:
            yield from _values(each, text)
    elif hint is str:
        yield text
    elif hint is Any:
        yield text
        yield {"a": [{"b": text}], "n": 5}
        yield {text: True}
    elif origin is list:
        for value in _values(args[0], text):
            yield [value]
    elif origin is dict:
        if args[1] in (int, float):
            yield {text: 5}
        elif args[1] is Any or args[1] is str:
            yield from ({"7": value} for value in _values(args[1], text))
            yield from ([{text: "x"}] if args[1] is Any else [])
        else:
            yield {text: "ask"}
    elif isinstance(hint, type) and issubclass(hint, Payload):
        for name, value in _planted(hint, text):
            yield {**_least(hint), name: value}
