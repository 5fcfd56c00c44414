"""Shows the fields of a value in its signature, not as a heading each, in the API reference.

An extension of griffe, which reads the source for mkdocstrings. It knows dataclasses; this adds
structs of msgspec, and removes the headings of fields without a docstring.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

Kind = griffe.ParameterKind


class Fields(griffe.Extension):
    """Walks all classes of a package when it has been loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        self._walk(pkg)

    def _walk(self, found: griffe.Module | griffe.Class) -> None:
        for member in list(found.members.values()):
            if member.is_alias:
                continue
            if member.is_class:
                _fold(member)
            if member.is_module or member.is_class:
                self._walk(member)


def _fold(cls: griffe.Class) -> None:
    """Move the fields of a struct or a dataclass into its signature."""
    line = [cls, *cls.mro()]
    if not any(_is_value(found) for found in line):
        return
    own = _own(cls)
    if "__init__" not in cls.members:
        given = [griffe.Parameter("self", kind=Kind.positional_or_keyword)]
        head = (cls.source.partition('"""')[0]) if cls.lineno else ""
        kind = Kind.keyword_only if "kw_only=True" in head else Kind.positional_or_keyword
        for name, field in _by_name(line).items():
            told = {"annotation": field.annotation, "default": _default(field)}
            given.append(griffe.Parameter(name, kind=kind, **told))
        made = griffe.Function("__init__", parameters=griffe.Parameters(*given), parent=cls)
        cls.set_member("__init__", made)
    for field in own:
        if field.docstring is None:
            cls.del_member(field.name)


def _is_field(member: griffe.Object | griffe.Alias) -> bool:
    plain = member.is_attribute and not member.name.startswith("_")
    constant = plain and "ClassVar" in str(member.annotation)
    return plain and member.annotation is not None and not constant and not _computed(member)


def _computed(member: griffe.Object | griffe.Alias) -> bool:
    return "property" in member.labels


def _is_value(cls: griffe.Class) -> bool:
    return "dataclass" in cls.labels or any("Struct" in str(base) for base in cls.bases)


def _own(cls: griffe.Class) -> list[griffe.Attribute]:
    """The fields of a class, also when their headings have been removed."""
    kept = cls.extra["holdfast"]
    if "own" not in kept:
        kept["own"] = [member for member in cls.members.values() if _is_field(member)]
    return kept["own"]


def _by_name(line: list[griffe.Class]) -> dict[str, griffe.Attribute]:
    """The fields of a class and its bases, the base's first."""
    return {field.name: field for cls in reversed(line) for field in _own(cls)}


def _default(field: griffe.Attribute) -> str | None:
    if field.value is None:
        return None
    made = re.fullmatch(r"field\(default_factory=(\w+)(?:, .*)?\)", str(field.value))
    return f"{made[1]}()" if made else str(field.value)
