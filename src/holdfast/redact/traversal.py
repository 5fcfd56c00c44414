"""Masks the secrets in structured values: in fields, pairs of a name and a value, JSON Schemas, and
objects of known types.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct

from .names import listed, word_set, words
from .values import Looks, looks

DEPTH, VALUES = 128, 1_000_000  # how deep values may be nested, and how many there may be

_SCALARS = (int, float, decimal.Decimal, datetime.date, datetime.time, datetime.timedelta)
_SCHEMA = word_set("type $ref anyOf oneOf allOf enum const format")
_INSIDE = word_set("properties patternProperties $defs definitions dependentSchemas")
_SAMPLES = word_set("default example examples const enum")
_NAMES = listed(
    """
name key keyname variablename secretname parametername parameterkey header field variable path
parameter option label
"""
)
_VALUES = listed("value default defaultvalue stringvalue parametervalue")
# An object with only these fields refers to a secret that is stored elsewhere.
_WHERE = word_set("""
env vault key name path file ref from valuefrom version arn secretkeyref source provider secretname
namespace optional id $ref secretref keyname command keyring external secret_name secret_key_ref
""")
_JWK = word_set("d p q dp dq qi k")
_SURROGATE = re.compile(r"[\ud800-\udfff]")  # a lone surrogate, which cannot be encoded
_COUNTED = ("token", "tokens", "weak")  # numbers with these names are counts


class ValueName(NamedTuple):
    """The name of a value, and the kind of secret that it names. In a `schema`, only sample values
    are secret.
    """

    name: str
    says: str
    schema: bool = False

    @property
    def rule(self) -> str:
        return "key" if self.says in _COUNTED else self.says

    @property
    def reason(self) -> str:
        return f"it is the value of {self.name}"


class Masks(Protocol):
    """The methods of `Redactor` that `Traversal` calls."""

    def named(self, key: str) -> str | None: ...
    def judged(self, name: ValueName, value: str, path: str) -> bool: ...
    def text(self, text: str, path: str = "") -> str: ...
    def key(self, key: str, path: str = "") -> str: ...
    def number(self, value: Any, path: str = "") -> Any: ...
    def whole(self, rule: str, secret: str, path: str, reason: str = "") -> str: ...


class Traversal:
    """Masks the secrets in one structured value. Used once per value."""

    def __init__(self, redactor: Masks) -> None:
        self._redactor = redactor
        self._above: set[int] = set()
        self._left = VALUES
        self.cut = False  # whether something was nested too deep, or the value was too large

    def value(self, value: Any, path: str, depth: int, under: ValueName | None = None) -> Any:
        """Return a copy of the value with all secrets masked. `under` is the name of the value if
        it is the name of a secret.
        """
        self._left -= 1
        if value is None or isinstance(value, bool):
            return value
        secret = under if under and not under.schema else None
        if isinstance(value, str):
            if secret and value and self._redactor.judged(secret, value, path):
                return self._redactor.whole(secret.rule, value, path, secret.reason)
            return self._redactor.text(value, path)
        if isinstance(value, _SCALARS):
            if secret and secret.says not in _COUNTED:
                return self._redactor.whole(secret.rule, str(value), path, secret.reason)
            return self._redactor.number(value, path)
        if isinstance(value, uuid.UUID):
            if under and under.says != "weak":
                return self._redactor.whole(under.rule, str(value), path)
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f"[{len(value)} bytes]"
        if depth >= DEPTH or self._left < 0:
            self.cut = True
            return "[too deep]" if depth >= DEPTH else "[too much]"
        if id(value) in self._above:
            return "[circular]"
        self._above.add(id(value))
        try:
            return self._container(value, path, depth + 1, under)
        finally:
            self._above.discard(id(value))

    def _container(self, value: Any, path: str, depth: int, under: ValueName | None) -> Any:
        if isinstance(value, Raw):
            return self._raw(value, path, depth, under)
        if isinstance(value, Mapping):
            return self._mapping(value, path, depth, under)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._items(value, path, depth, under)
        if isinstance(value, Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            masked = self._mapping(fields, path, depth, under)
            try:
                return msgspec.structs.replace(value, **masked)
            except Exception:  # it validates its fields, and rejects masked values
                return masked
        if dataclasses.is_dataclass(value) and not isinstance(value, (type, BaseException)):
            fields = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
            return self._mapping(fields, path, depth, under)
        return self.value(describe(value), path, depth, under)

    def _mapping(
        self, value: Mapping[Any, Any], path: str, depth: int, above: ValueName | None
    ) -> Any:
        found: dict[Any, Any] = {}
        pair, wording = _pair(value), _is_wording(value)
        for key, item in value.items():
            name, under = key, above
            if isinstance(key, str):
                name = self._redactor.key(key, path)
                under = self._under(key, item, path, above) or _known(value, key)
                if wording and not above and isinstance(item, str) and _is_words(item):
                    under = None
            if pair is not None and key == pair[1]:
                under = under or self._said(pair[0])
            while name in found:
                name = f"{name}′"
            found[name] = self.value(item, step(path, name), depth, under)
        return found

    def _said(self, name: str) -> ValueName | None:
        says = self._redactor.named(name.rpartition("/")[2])
        return ValueName(name, says) if says else None

    def _under(self, key: str, item: Any, path: str, above: ValueName | None) -> ValueName | None:
        """Return the name of a secret that applies to `item`: `key`, or a name of an enclosing
        value.
        """
        if above is not None and above.schema:
            if key in _SAMPLES:
                return above._replace(schema=False)
            return above if key in ("items", "anyOf", "oneOf", "allOf") else None
        if above is not None and above.says != "weak":
            return above
        says = self._redactor.named(key)
        if says is None or (isinstance(item, Mapping) and _is_reference(item)):
            return None
        return ValueName(key, says, schema=_is_schema(path, item))

    def _items(self, value: Any, path: str, depth: int, above: ValueName | None) -> Any:
        if _is_header(value, path):
            under = above or self._said(value[0])
            kept = self.value(value[0], f"{path}[0]", depth, above)
            pair = kept, self.value(value[1], f"{path}[1]", depth, under)
            return pair if isinstance(value, tuple) else list(pair)
        raw = path.endswith("eaders") and words(_last(path))[-2:] == ("raw", "headers")
        items, before = [], ""
        for n, item in enumerate(value):  # raw headers alternate names and values
            under = above or (self._said(before) if raw and n % 2 else None)
            items.append(self.value(item, f"{path}[{n}]", depth, under))
            before = item if isinstance(item, str) else ""
        if isinstance(value, (set, frozenset)):
            return items
        return tuple(items) if isinstance(value, tuple) else items

    def _raw(self, value: Raw, path: str, depth: int, under: ValueName | None) -> Raw:
        try:
            plain = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return Raw(msgspec.json.encode(f"[{len(bytes(value))} bytes]"))
        return Raw(msgspec.json.encode(self.value(plain, path, depth, under)))


def step(path: str, name: Any) -> str:
    """Return the path of a field; a name that is not a plain word is written as in JSON."""
    if path.startswith("$") and not (isinstance(name, str) and _plain(name)):
        return f"{path}[{json.dumps(str(name), ensure_ascii=bool(_SURROGATE.search(str(name))))}]"
    return f"{path}.{name}" if path else str(name)


def _plain(name: str) -> bool:
    return name.isascii() and name.replace("_", "a").isalnum()


def _last(path: str) -> str:
    """Return the last name of a path."""
    if path.endswith('"]'):
        return path[:-2].rpartition('["')[2]
    return path.rpartition(".")[2]


def _pair(value: Mapping[Any, Any]) -> tuple[str, str] | None:
    """Return the name in `{"name": "API_KEY", "value": "…"}`, as in lists of variables and headers,
    and the key of its value.
    """
    if len(value) > 16:
        return None
    small = {key.lower(): key for key in value if isinstance(key, str)}
    under = next((small[name] for name in _VALUES if name in small), None)
    if under is None:
        return None
    for name in _NAMES:
        said = value.get(small.get(name, ""))
        if isinstance(said, str):
            return said, under
    return None


def _known(value: Mapping[Any, Any], key: str) -> ValueName | None:
    """Return the name to report if field `key` is secret in an object of a known type: the data of
    a Kubernetes Secret, or the private members of a JSON Web Key. Return None for other fields.
    """
    if key in ("data", "stringData") and value.get("kind") == "Secret":
        return ValueName("Secret", "key")
    return ValueName("JWK", "key") if key in _JWK and "kty" in value else None


def _is_reference(item: Mapping[Any, Any]) -> bool:
    return bool(item) and all(isinstance(key, str) and key.lower() in _WHERE for key in item)


def _is_wording(value: Mapping[Any, Any]) -> bool:
    """Return whether most texts of an object look like labels of a user interface."""
    texts = [item for item in value.values() if isinstance(item, str) and item]
    return len(texts) >= 4 and sum(map(_is_words, texts)) * 3 >= len(texts) * 2


def _is_words(text: str) -> bool:
    return looks(text) in (Looks.LABEL, Looks.PHRASE, Looks.WORD) and text[:1].isupper()


def _is_header(value: Any, path: str) -> bool:
    """Return whether the value is a header as a pair of name and value: a tuple, or a list within a
    list.
    """
    if len(value) != 2 or not (
        type(value) is tuple or (type(value) is list and path[-1:] == "]" and path[-2:-1].isdigit())
    ):
        return False
    return isinstance(value[0], str)


def _is_schema(path: str, item: Any) -> bool:
    """Return whether the value is the JSON Schema of a field that is named like a secret."""
    return _last(path) in _INSIDE and isinstance(item, Mapping) and not _SCHEMA.isdisjoint(item)


def describe(value: Any) -> str:
    """Return an exception or an unknown object as text, even if `str` fails.

    See [redaction](../redaction.md).
    """
    try:
        text = str(value)
    except Exception:
        return f"[{type(value).__name__}]"
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {text}" if text else type(value).__name__
    return text
