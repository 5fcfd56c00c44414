"""The walk through a value: names, pairs, schemas; what it cannot keep it names."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from .names import words

DEPTH, VALUES = 128, 1_000_000  # how deep a value may nest, and how much it may hold

_SCALARS = (int, float, decimal.Decimal, datetime.date, datetime.time, datetime.timedelta)
_SCHEMA = {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "format"}
_INSIDE = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_SAMPLES = {"default", "example", "examples", "const", "enum"}
_NAMES = ("name", "key", "header", "field", "variable")
# How a name says that something is secret, beside the rules of labels.
_TEXTS = ("token", "tokens")  # texts are; numbers count them
_SPOKEN = "schema:"  # and a rule: a schema speaks of it, and its samples are


class Masks(Protocol):
    """What a walk asks about names, and hands texts and numbers to."""

    def named(self, key: str) -> str | None: ...
    def text(self, text: str, path: str = "") -> str: ...
    def number(self, value: Any, path: str = "") -> Any: ...
    def whole(self, rule: str, secret: str, path: str) -> str: ...


class Walk:
    """One walk through a value: where it is, and how much it has seen."""

    def __init__(self, redactor: Masks) -> None:
        self._redactor = redactor
        self._above: set[int] = set()
        self._left = VALUES

    def value(self, value: Any, path: str, depth: int, named: str | None = None) -> Any:
        """The value masked; `named` is how the name says that it is secret."""
        self._left -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            if named and value and not named.startswith(_SPOKEN):
                return self._redactor.whole(_rule(named), value, path)
            return self._redactor.text(value, path)
        if isinstance(value, _SCALARS):
            secret = named and named not in _TEXTS and not named.startswith(_SPOKEN)
            if secret:
                return self._redactor.whole(_rule(named), str(value), path)
            return self._redactor.number(value, path)
        if isinstance(value, uuid.UUID):
            return self._redactor.whole(_rule(named), str(value), path) if named else value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f"[{len(value)} bytes]"
        if depth >= DEPTH or self._left < 0:
            return "[too deep]" if depth >= DEPTH else "[too much]"
        if id(value) in self._above:
            return "[circular]"
        self._above.add(id(value))
        try:
            return self._container(value, path, depth + 1, named)
        finally:
            self._above.discard(id(value))

    def _container(self, value: Any, path: str, depth: int, named: str | None) -> Any:
        if isinstance(value, Raw):
            return self._raw(value, path, depth, named)
        if isinstance(value, Mapping):
            return self._mapping(value, path, depth, named)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._items(value, path, depth, named)
        if isinstance(value, Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            masked = self._mapping(fields, path, depth, named)
            try:
                return msgspec.structs.replace(value, **masked)
            except Exception:  # it checks its fields, and refuses what is masked
                return masked
        if dataclasses.is_dataclass(value) and not isinstance(value, (type, BaseException)):
            fields = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
            return self._mapping(fields, path, depth, named)
        return self.value(describe(value), path, depth, named)

    def _mapping(self, value: Mapping[Any, Any], path: str, depth: int, named: str | None) -> Any:
        found: dict[Any, Any] = {}
        pair = _pair(value)
        for key, item in value.items():
            name, under = key, named
            if isinstance(key, str):
                name = self._redactor.text(key, path)
                under = self._under(key, item, path, named)
            if pair is not None and key == pair[1]:
                under = under or self._redactor.named(pair[0])
            while name in found:
                name = f"{name}′"
            found[name] = self.value(item, step(path, name), depth, under)
        return found

    def _under(self, key: str, item: Any, path: str, named: str | None) -> str | None:
        """What the name makes of what stands under it, where `named` is said from above."""
        if named is not None and named.startswith(_SPOKEN):
            if key in _SAMPLES:
                return named.removeprefix(_SPOKEN)
            return named if key in ("items", "anyOf", "oneOf", "allOf") else None
        under = named or self._redactor.named(key)
        if under and not named and _is_schema(path, item):
            return _SPOKEN + under
        return under

    def _items(self, value: Any, path: str, depth: int, named: str | None) -> Any:
        if _is_header(value, path):
            under = named or self._redactor.named(value[0])
            kept = self.value(value[0], f"{path}[0]", depth, named)
            pair = kept, self.value(value[1], f"{path}[1]", depth, under)
            return pair if isinstance(value, tuple) else list(pair)
        raw = path.endswith("eaders") and words(_last(path))[-2:] == ("raw", "headers")
        items, before = [], ""
        for n, item in enumerate(value):  # in raw ones names and values stand in turn
            under = named or (self._redactor.named(before) if raw and n % 2 else None)
            items.append(self.value(item, f"{path}[{n}]", depth, under))
            before = item if isinstance(item, str) else ""
        if isinstance(value, (set, frozenset)):
            return items
        return tuple(items) if isinstance(value, tuple) else items

    def _raw(self, value: Raw, path: str, depth: int, named: str | None) -> Raw:
        try:
            plain = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return Raw(msgspec.json.encode(f"[{len(bytes(value))} bytes]"))
        return Raw(msgspec.json.encode(self.value(plain, path, depth, named)))


def step(path: str, name: Any) -> str:
    """The path of what stands under a name; one that is no plain word is written as in JSON."""
    if path.startswith("$") and not (isinstance(name, str) and _plain(name)):
        return f"{path}[{msgspec.json.encode(str(name)).decode()}]"
    return f"{path}.{name}" if path else str(name)


def _plain(name: str) -> bool:
    return name.isascii() and name.replace("_", "a").isalnum()


def _rule(named: str | None) -> str:
    return "key" if named is None or named in _TEXTS else named.removeprefix(_SPOKEN)


def _last(path: str) -> str:
    """The name under which the value at `path` stands."""
    if path.endswith('"]'):
        return path[:-2].rpartition('["')[2]
    return path.rpartition(".")[2]


def _pair(value: Mapping[Any, Any]) -> tuple[str, str] | None:
    """The name in `{"name": "API_KEY", "value": "…"}`, as environments and headers are listed,
    and the key under which the value stands."""
    if len(value) > 16:
        return None
    small = {key.lower(): key for key in value if isinstance(key, str)}
    if "value" not in small:
        return None
    for name in _NAMES:
        said = value.get(small.get(name, ""))
        if isinstance(said, str):
            return said, small["value"]
    return None


def _is_header(value: Any, path: str) -> bool:
    """Whether it is a header as a pair of its name and its value: a tuple is, and among
    other items a list."""
    if len(value) != 2 or not (
        type(value) is tuple or (type(value) is list and path[-1:] == "]" and path[-2:-1].isdigit())
    ):
        return False
    return isinstance(value[0], str)


def _is_schema(path: str, item: Any) -> bool:
    """Whether a JSON Schema only speaks of a field that is called like a secret."""
    return _last(path) in _INSIDE and isinstance(item, Mapping) and not _SCHEMA.isdisjoint(item)


def describe(value: Any) -> str:
    """An exception or an unknown object as text, even if it refuses."""
    try:
        text = str(value)
    except Exception:
        return f"[{type(value).__name__}]"
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {text}" if text else type(value).__name__
    return text
