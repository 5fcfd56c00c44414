"""What is wrong with a request, in words: which field, and what is taken in its place. Read off
what the check of the types says and off the types themselves, which a client does not see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec.inspect as types
from litestar.exceptions import ValidationException
from litestar.types import Scope

from ..errors import InvalidValue
from ..errors.root import instead

LONGEST = 200  # characters of a name or a value that an error repeats
DOCUMENT = "see /v1/openapi.json for what is taken here"
BODY = "data"  # what a body is called among the parameters of a route
MISSING = re.compile(r"Missing required (\w+) parameter '([\w-]+)'")
UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
LACKING = re.compile(r"Object missing required field `(.*)`")
NO_CHOICE = re.compile(r"Invalid enum value '?(.*?)'?", re.DOTALL)
NO_OBJECT = re.compile(r"Expected `object( \| null)?`, got `.*`")
PART = re.compile(r"\[[^\]]*\]|[^.\[\]]+")


def mistake(error: ValidationException, scope: Scope) -> InvalidValue:
    """The first of the things that are wrong with a request, and where it is."""
    if (missing := MISSING.match(str(error.detail))) is not None:
        source, field = missing.groups()
        return InvalidValue(field=field, problem=f"is missing ({source})", remedy="give it")
    extra: Any = error.extra
    first = extra[0] if isinstance(extra, list) and extra else {}
    first = first if isinstance(first, dict) else {}
    problem = str(first.get("message") or "is not as it should be")
    source = str(getattr(first.get("source"), "value", first.get("source") or "request"))
    key = str(first.get("key") or BODY)
    if key == BODY and problem == f"'{BODY}'":
        return InvalidValue(field="body", problem=f"is missing ({source})", remedy=DOCUMENT)
    if "matching regex" in problem:
        problem = "has characters that cannot be used here"
    field, problem, remedy = told(key, problem, [*_wanted(scope, key)])
    return InvalidValue(field=field, problem=f"{problem} ({source})", remedy=remedy)


def told(key: str, problem: str, wanted: list[types.Type]) -> tuple[str, str, str]:
    """Field, problem and remedy, where `wanted` are the types that are taken at `key`."""
    where = "" if key == BODY else key.removeprefix(f"{BODY}.")
    objects = [kind for kind in wanted if isinstance(kind, types.StructType)]
    fields = [field.encode_name for kind in objects for field in kind.fields]
    if (found := UNKNOWN.fullmatch(problem)) is not None:
        name = found[1][:LONGEST]
        return _joined(where, name), "is no field here", instead(name, fields)
    if (found := LACKING.fullmatch(problem)) is not None:
        return _joined(where, found[1]), "is missing", "give it"
    if (found := NO_CHOICE.fullmatch(problem)) is not None and (choices := _choices(wanted)):
        value = found[1][:LONGEST]
        return where or "body", f"{value!r} is no choice", instead(value, choices)
    if NO_OBJECT.fullmatch(problem) is not None and fields:
        needed = [field.encode_name for kind in objects for field in kind.fields if field.required]
        shape = ", ".join(f'"{name}": …' for name in needed) or "…"
        remedy = f"give an object, {{{shape}}}; its fields are: {', '.join(fields)}"
        return where or "body", problem, remedy
    return where or "body", problem[:LONGEST], DOCUMENT


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _wanted(scope: Scope, key: str) -> Iterator[types.Type]:
    """The types that a route takes at a place: a parameter, or a path into the body."""
    handler: Any = scope.get("route_handler")
    if handler is None:
        return
    taken = handler.parsed_fn_signature.parameters
    first, *rest = PART.findall(key)
    if first not in taken:
        first, rest = BODY, [first, *rest]
    if first not in taken:
        return
    found = [*_kinds(types.type_info(taken[first].annotation))]
    for part in rest:
        found = [kind for one in found for inner in _inside(one, part) for kind in _kinds(inner)]
    yield from found


def _kinds(kind: types.Type) -> Iterator[types.Type]:
    """The types that a value may have: those of a union one by one."""
    if isinstance(kind, types.Metadata):
        yield from _kinds(kind.type)
    elif isinstance(kind, types.UnionType):
        for one in kind.types:
            yield from _kinds(one)
    else:
        yield kind


def _inside(kind: types.Type, part: str) -> Iterator[types.Type]:
    if isinstance(kind, types.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == part)
    elif isinstance(kind, types.DictType):
        yield kind.value_type
    elif isinstance(kind, types.ListType):
        yield kind.item_type


def _choices(wanted: list[types.Type]) -> list[str]:
    """The values that there are to choose from, or the names that an object may have."""
    keys = [key for kind in wanted if isinstance(kind, types.DictType) for key in [kind.key_type]]
    found: list[str] = []
    for kind in (*wanted, *(one for key in keys for one in _kinds(key))):
        if isinstance(kind, types.LiteralType):
            found.extend(map(str, kind.values))
        elif isinstance(kind, types.EnumType):
            found.extend(str(one.value) for one in kind.cls)
    return found
