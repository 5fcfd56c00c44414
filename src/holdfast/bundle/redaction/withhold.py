"""Mode `replay_only`: structure, and no content at all.

What is kept is on a list: see `fields`. All other texts become numbered placeholders, equal ones
the same, so that they can be compared within a bundle; names in free JSON do too. Numbers in
free JSON become 0.
"""

from __future__ import annotations

import re
from typing import Any

from .fields import BEFORE, BEHIND, What
from .manifest import Pseudonyms, Tally, apart
from .sanitize import Sanitizer

_WHOLE = re.compile(r"\[withheld(?::\d{1,9})?\]")
_NAME = re.compile(r"[A-Za-z0-9_][\w.:/+-]{0,127}", re.ASCII)
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MADE = rf"(?:{_UUID}|[0-9a-f]{{16,64}}|\d{{1,19}}|main|\[withheld:\d{{1,9}}\])"
_ID = re.compile(rf"({BEFORE})(?:({_MADE})|(.+?))({BEHIND})", re.DOTALL)
_HASH = re.compile(r"(?:[a-z0-9]{1,12}:)?[0-9A-Fa-f]{16,128}")
_MEDIA = re.compile(r"[a-z]{1,20}/[A-Za-z0-9.+-]{1,80}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REFS = {
    "kind": {"file", "url", "command", "call", "session", "external"},
    "role": {"created", "modified", "read", "evidence"},
}
_TYPES = {"string", "number", "integer", "boolean", "object", "array", "null"}
_SCHEMAS = {"items", "additionalProperties", "not", "if", "then", "else", "contains"}
_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
_MAPS = {"properties", "$defs", "definitions", "patternProperties"}
_BOUNDS = {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems"}


class Withholder:
    """Keeps what is on the list, and withholds the rest."""

    def __init__(self, sanitizer: Sanitizer, tally: Tally, names: Pseudonyms) -> None:
        self._sanitizer = sanitizer
        self._tally = tally
        self._names = names

    def field(self, what: What, value: Any, path: str) -> Any:
        """One field of a payload, by what it is."""
        if what == "keep" or value is None:
            return value
        if what == "shape" and isinstance(value, dict):
            return self._shape(value, path)
        if what in ("parts", "refs") and isinstance(value, list):
            take = self._part if what == "parts" else self._ref
            return [take(item, path) for item in value]
        if what in ("names", "numbered") and isinstance(value, dict):
            return apart((self.name(k, path), self._under(what, v, path)) for k, v in value.items())
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
        """Content in words: nothing of it."""
        if not text or _WHOLE.fullmatch(text):
            return text
        self._tally.hit("content", "withheld", path)
        return self._names.withheld(text)

    def value(self, value: Any, path: str) -> Any:
        """Content as JSON: how it is nested, and nothing else."""
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, dict):
            return apart((self.text(k, path), self.value(v, path)) for k, v in value.items())
        if isinstance(value, (list, tuple)):
            return [self.value(item, path) for item in value]
        if value is None or isinstance(value, bool) or value == 0:
            return value
        self._tally.hit("content", "withheld", path)
        return 0

    def name(self, name: str, path: str) -> str:
        """A name that a program gave, if it is one."""
        if _WHOLE.fullmatch(name) or (_NAME.fullmatch(name) and self._sanitizer.quiet(name)):
            return name
        return self.text(name, path)

    def id(self, id: str, path: str) -> str:
        """An id: one that was made by a machine stays, and those that derive from it."""
        found = _ID.fullmatch(id)
        if found is None or found[2] is not None:
            return id if found is not None else self.text(id, path)
        self._tally.hit("id", "id", path)
        return f"{found[1]}{self._names.withheld(found[3], pairs=True)}{found[4]}"

    def _part(self, part: Any, path: str) -> Any:
        """A part of a message; which blob it is stays."""
        if not isinstance(part, dict) or part.get("type") != "blob":
            return self.value(part, path)
        kept: dict[str, Any] = {}
        for name, item in part.items():
            fits = (name == "type" and item == "blob") or (name == "size" and type(item) is int)
            if name == "sha256" and isinstance(item, str):
                fits = _SHA256.fullmatch(item) is not None
            if name == "media_type" and isinstance(item, str):
                fits = _MEDIA.fullmatch(item) is not None
            known = name in ("type", "size", "sha256", "media_type", "name")
            kept[name if known else self.text(name, path)] = (
                item if fits else self.value(item, path)
            )
        return kept

    def _ref(self, ref: Any, path: str) -> Any:
        if not isinstance(ref, dict):
            return self.value(ref, path)
        kept: dict[str, Any] = {}
        for name, item in ref.items():
            fits = isinstance(item, str) and item in _REFS.get(name, ())
            fits = fits or (name == "exit_code" and type(item) is int)
            known = name in ("kind", "role", "exit_code", "value")
            kept[name if known else self.text(name, path)] = (
                item if fits else self.value(item, path)
            )
        return kept

    def _shape(self, value: dict[str, Any], path: str) -> Any:
        """The name of an answer's type, and its schema without words."""
        kept: dict[str, Any] = {}
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
