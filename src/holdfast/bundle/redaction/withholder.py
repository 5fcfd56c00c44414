"""Implements the mode `replay_only`, which keeps the structure of a session and no content.

`fields` lists what is kept. All other strings, and the names in free-form JSON, become numbered
placeholders. Equal strings get the same placeholder, so that they can be compared within a bundle.
Numbers in free-form JSON become 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..json_values import JsonObject
from .fields import BEFORE, BEHIND, What
from .manifest import HitCounter, Pseudonyms, distinct
from .sanitizer import Sanitizer

_WHOLE = re.compile(r"\[withheld(?::\d{1,9})?\]")
_NAME = re.compile(r"[A-Za-z0-9_][\w.:/+-]{0,127}", re.ASCII)
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MADE = rf"(?:{_UUID}|[0-9a-f]{{16,64}}|\d{{1,19}}|main|\[withheld:\d{{1,9}}\])"
_ID = re.compile(rf"({BEFORE})(?:({_MADE})|(.+?))({BEHIND})", re.DOTALL)
_HASH = re.compile(r"(?:[a-z0-9]{1,12}:)?[0-9A-Fa-f]{16,128}")
Fits: TypeAlias = Callable[[Any], bool]


def _is_int(item: Any) -> bool:
    return type(item) is int


def _never(item: Any) -> bool:
    return False


def _full(pattern: re.Pattern[str]) -> Fits:
    return lambda item: isinstance(item, str) and pattern.fullmatch(item) is not None


# Fields of objects whose names are kept, with a check of the values that are kept too.
_BLOB: dict[str, Fits] = {
    "type": lambda item: item == "blob",
    "size": _is_int,
    "length": _is_int,
    "sha256": _full(re.compile(r"[0-9a-f]{64}")),
    "media_type": _full(re.compile(r"[a-z]{1,20}/[A-Za-z0-9.+-]{1,80}")),
    "name": _never,
}
_REF: dict[str, Fits] = {
    "kind": _full(re.compile("file|url|command|call|session|external")),
    "role": _full(re.compile("created|modified|read|evidence")),
    "exit_code": _is_int,
    "value": _never,
}
_TYPES = {"string", "number", "integer", "boolean", "object", "array", "null"}
_SCHEMAS = {"items", "additionalProperties", "not", "if", "then", "else", "contains"}
_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
_MAPS = {"properties", "$defs", "definitions", "patternProperties"}
_BOUNDS = {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems"}


class Withholder:
    """Replaces all content with placeholders. Only the structure that `fields` lists is kept."""

    def __init__(self, sanitizer: Sanitizer, hits: HitCounter, names: Pseudonyms) -> None:
        self._sanitizer = sanitizer
        self._hits = hits
        self._names = names

    def field(self, what: What, value: Any, path: str) -> Any:
        """Redact one field of a payload, according to its role."""
        if what == "keep" or value is None:
            return value
        if what == "shape" and isinstance(value, dict):
            return self._shape(value, path)
        if what in ("parts", "refs") and isinstance(value, list):
            known = _BLOB if what == "parts" else _REF
            return [self._object(item, known, path) for item in value]
        if what in ("names", "numbered") and isinstance(value, dict):
            return distinct(
                (self.name(k, path), self._under(what, v, path)) for k, v in value.items()
            )
        if isinstance(value, list) and what != "value":
            return [self.field(what, item, path) for item in value]
        if not isinstance(value, str) or what == "value":
            return self.value(value, path)
        if what == "id":
            return self.id(value, path)
        if what == "name" or (what == "hash" and _HASH.fullmatch(value)):
            return self.name(value, path)
        return self.text(value, path)

    def _under(self, what: What, value: Any, path: str) -> Any:
        return self.text(value, path) if what == "numbered" else value

    def text(self, text: str, path: str) -> str:
        """Return the placeholder of a string."""
        if not text or _WHOLE.fullmatch(text):
            return text
        self._hits.add("content", "withheld", path)
        return self._names.withheld(text)

    def value(self, value: Any, path: str) -> Any:
        """Return the structure of a JSON value, without its content."""
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, dict):
            return distinct((self.text(k, path), self.value(v, path)) for k, v in value.items())
        if isinstance(value, (list, tuple)):
            return [self.value(item, path) for item in value]
        if value is None or isinstance(value, bool) or value == 0:
            return value
        self._hits.add("content", "withheld", path)
        return 0

    def name(self, name: str, path: str) -> str:
        """Return a name if it looks like a name and contains nothing private; else its
        placeholder."""
        if _WHOLE.fullmatch(name) or (_NAME.fullmatch(name) and self._sanitizer.quiet(name)):
            return name
        return self.text(name, path)

    def id(self, id: str, path: str) -> str:
        """Return an id with its name withheld; ids that were generated are kept."""
        found = _ID.fullmatch(id)
        if found is None or found[2] is not None:
            return id if found is not None else self.text(id, path)
        self._hits.add("id", "id", path)
        return f"{found[1]}{self._names.withheld(found[3], pairs=True)}{found[4]}"

    def _object(self, value: Any, known: Mapping[str, Fits], path: str) -> Any:
        """Redact an object with known fields. Among the parts of a message, only blobs are
        structure.
        """
        if not isinstance(value, dict) or (known is _BLOB and value.get("type") != "blob"):
            return self.value(value, path)
        kept: JsonObject = {}
        for name, item in value.items():
            fits = known.get(name)
            plain = fits is not None and fits(item)
            kept[name if fits else self.text(name, path)] = (
                item if plain else self.value(item, path)
            )
        return kept

    def _shape(self, value: JsonObject, path: str) -> Any:
        """Return the type name of an answer, and its schema without strings."""
        kept: JsonObject = {}
        for name, item in value.items():
            if name == "name" and isinstance(item, str):
                kept[name] = self.name(item, path)
            elif name == "schema":
                kept[name] = self._schema(item, path)
            else:
                kept[self.text(name, path)] = self.value(item, path)
        return kept

    def _schema(self, schema: Any, path: str) -> Any:
        if not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else self.value(schema, path)
        return dict(self._keyword(word, item, path) for word, item in schema.items())

    def _keyword(self, word: str, item: Any, path: str) -> tuple[str, Any]:
        if word in _SCHEMAS:
            return word, self._schema(item, path)
        if word in _LISTS and isinstance(item, list):
            return word, [self._schema(each, path) for each in item]
        if word in _MAPS and isinstance(item, dict):
            return word, {self.name(k, path): self._schema(v, path) for k, v in item.items()}
        if word == "required" and isinstance(item, list):
            return word, [self.field("name", each, path) for each in item]
        types = item if isinstance(item, list) else [item]
        if word == "type" and all(isinstance(each, str) and each in _TYPES for each in types):
            return word, item
        if word == "$ref" and isinstance(item, str):
            lead, _, name = item.rpartition("/")
            plain = lead in ("#/$defs", "#/definitions")
            return word, f"{lead}/{self.name(name, path)}" if plain else self.text(item, path)
        if word in _BOUNDS and isinstance(item, (int, float)):
            return word, item
        known = word in ("title", "description", "default", "enum", "const", "examples", "format")
        return (word if known else self.text(word, path)), self.value(item, path)
