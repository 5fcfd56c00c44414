"""Error messages for invalid requests: the invalid field, and the values that it accepts. They are
derived from msgspec's errors and from the types of the route, which a client does not see."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec.inspect as types
from litestar.exceptions import ValidationException
from litestar.types import Scope

from ...errors import InvalidValue
from ...errors.root import instead
from ...log.codec import LARGEST
from .headers import base_of

LONGEST = 200  # characters of a name or a value that an error quotes
DOCUMENT = "see /v1/openapi.json for the parameters and fields"
BODY = "data"  # the name of the parameter of a route that receives the body
MISSING = re.compile(r"Missing required (\w+) parameter '([\w-]+)'")
UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
LACKING = re.compile(r"Object missing required field `(.*)`")
NO_CHOICE = re.compile(r"Invalid enum value '?(.*?)'?", re.DOTALL)
NO_OBJECT = re.compile(r"Expected `object( \| null)?`, got `.*`")
OTHER = re.compile(r"Expected `(.*)`, got `(.*)`")
SIZE = re.compile(r"Expected `[^`]*`( of length)? ([<>]=?) (.*)")
TRUNCATED = "Input data was truncated"
SURROGATE = re.compile("[\ud800-\udfff]")
HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # an escape of half a surrogate pair
SEARCHED = 1 << 20  # the longest body, in bytes, that is searched for the cause
SORTS = {
    **{"str": "a string", "int": "a number", "float": "a number", "bool": "true or false"},
    **{"array": "a list", "object": "an object", "null": "null"},
}
PLAIN: tuple[tuple[Any, str], ...] = (
    (types.BoolType, "true or false"),
    ((types.ListType, types.VarTupleType), "a list"),
    ((types.DictType, types.StructType), "an object"),
    (types.NoneType, "null"),
)
PART = re.compile(r"\[[^\]]*\]|[^.\[\]]+")


def invalid_request(error: ValidationException, scope: Scope) -> InvalidValue:
    """Return the error for the first invalid field of a request."""
    if (missing := MISSING.match(str(error.detail))) is not None:
        source, field = missing.groups()
        return InvalidValue(
            field=field, problem=f"is missing ({source})", remedy="this parameter is required"
        )
    extra: Any = error.extra
    first = extra[0] if isinstance(extra, list) and extra else {}
    first = first if isinstance(first, dict) else {}
    problem = str(first.get("message") or "is invalid")
    source = str(getattr(first.get("source"), "value", first.get("source") or "request"))
    key = str(first.get("key") or BODY)
    if key == BODY and problem == f"'{BODY}'":
        return InvalidValue(field="body", problem=f"is missing ({source})", remedy=_document(scope))
    if "matching regex" in problem:
        problem = "contains characters that are not allowed"
    wanted = [*_wanted(scope, key)]
    limit = _limit(problem)
    field, problem, remedy = told(key, problem, wanted)
    if remedy == DOCUMENT and (said := _in_words(problem, wanted, _bounds(scope, key), source)):
        problem, remedy = said
    remedy = _document(scope) if remedy == DOCUMENT else remedy
    return InvalidValue(field=field, problem=f"{problem} ({source})", remedy=remedy, limit=limit)


def _limit(problem: str) -> int | None:
    """Return the limit that a value exceeds, or None if the error has another cause."""
    size = SIZE.fullmatch(problem)
    return int(size[3]) if size is not None and size[3].isdecimal() else None


def _document(scope: Scope) -> str:
    """Return the remedy that refers to the OpenAPI document, with the path at which the app is
    mounted."""
    return DOCUMENT.replace("/v1/", f"{base_of(scope)}/v1/")


def told(key: str, problem: str, wanted: list[types.Type]) -> tuple[str, str, str]:
    """Return the field, problem and remedy for a validation error. `wanted` lists the types that
    the field `key` accepts."""
    where = "" if key == BODY else key.removeprefix(f"{BODY}.")
    objects = [kind for kind in wanted if isinstance(kind, types.StructType)]
    fields = [field.encode_name for kind in objects for field in kind.fields]
    if (found := UNKNOWN.fullmatch(problem)) is not None:
        name = found[1][:LONGEST]
        return _joined(where, name), "is an unknown field", instead(name, fields)
    if (found := LACKING.fullmatch(problem)) is not None:
        return _joined(where, found[1]), "is missing", "this field is required"
    if (found := NO_CHOICE.fullmatch(problem)) is not None and (choices := _choices(wanted)):
        value = found[1][:LONGEST]
        return where or "body", f"{value!r} is not an allowed value", instead(value, choices)
    if NO_OBJECT.fullmatch(problem) is not None and fields:
        needed = [field.encode_name for kind in objects for field in kind.fields if field.required]
        shape = ", ".join(f'"{name}": …' for name in needed) or "…"
        remedy = f"send an object, {{{shape}}}, with the fields {', '.join(fields)}"
        return where or "body", problem, remedy
    return where or "body", problem[:LONGEST], DOCUMENT


def unreadable(detail: str, body: bytes) -> InvalidValue:
    """Return the error for a body that is not valid JSON. Detects a lone surrogate, which the
    decoder reports as truncated data."""
    if (where := _half_a_character(body)) is not None:
        return InvalidValue(
            field=where or "body",
            problem="contains a lone surrogate (\\ud800 to \\udfff)",
            remedy="send both halves of the pair, or the character as UTF-8",
        )
    problem = "is incomplete JSON" if detail == TRUNCATED else detail
    return InvalidValue(field="body", problem=problem, remedy="send valid JSON")


def _half_a_character(body: bytes) -> str | None:
    """Return the path of the first string with a lone surrogate. Returns None if there is none, or
    if the body is not valid JSON for another reason."""
    if len(body) > SEARCHED or not HALF.search(body):
        return None
    try:
        found = _half_in(json.loads(body))
    except (ValueError, RecursionError):
        return None
    return None if found is None else "".join(reversed(found)).removeprefix(".")[:LONGEST]


def _half_in(value: Any) -> list[str] | None:
    """Return the path to the first string with a lone surrogate, as a list with the last step
    first, or None."""
    if isinstance(value, str):
        return [] if SURROGATE.search(value) else None
    if isinstance(value, dict) and any(SURROGATE.search(name) for name in value):
        return []
    steps: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    for step, one in steps:
        if (way := _half_in(one)) is not None:
            return [*way, f".{step[:LONGEST]}" if isinstance(step, str) else f"[{step}]"]
    return None


# Expected types, in words


def _in_words(
    problem: str, wanted: list[types.Type], bounds: Mapping[str, Any], source: str
) -> tuple[str, str] | None:
    """Return a problem and a remedy for a value of the wrong type or size. Returns None if an
    accepted type has no short description."""
    outside = source in ("query", "path")  # there, every value is a string and never null
    kinds = [kind for kind in wanted if not (outside and isinstance(kind, types.NoneType))]
    words = [found for kind in kinds if (found := _words(kind, bounds)) is not None]
    if not words:
        return None
    remedy = f"pass {' or '.join(dict.fromkeys(words))}"
    if (other := OTHER.fullmatch(problem)) is not None:
        if not outside:
            return f"is {SORTS.get(other[2], other[2])}", remedy
        return f"is not {_words(kinds[0], {}) or 'a valid value'}", remedy
    if (size := SIZE.fullmatch(problem)) is not None:
        less, more = ("short", "long") if size[1] else ("small", "large")
        return f"is too {less if size[2].startswith('>') else more}", remedy
    return None


def _words(kind: types.Type, bounds: Mapping[str, Any]) -> str | None:
    """Return the name of a type with its limits, or None if it has no short name."""
    if isinstance(kind, (types.IntType, types.FloatType)):
        least = next((b for b in (kind.ge, bounds.get("ge")) if b is not None), None)
        most = next((b for b in (kind.le, bounds.get("le")) if b is not None), None)
        name = "a whole number" if isinstance(kind, types.IntType) else "a number"
        return name + _range(least, most)
    if isinstance(kind, types.StrType):
        least = next((b for b in (kind.min_length, bounds.get("min_length")) if b), None)
        most = next((b for b in (kind.max_length, bounds.get("max_length")) if b), None)
        return "a string" + _range(least, most, " characters").replace(" from", " of")
    return next((name for sort, name in PLAIN if isinstance(kind, sort)), None)


def _range(least: float | None, most: float | None, what: str = "") -> str:
    if most is not None and most < LARGEST:
        return f" from {least or 0:g} to {most:.12g}{what}"
    return "" if least is None else f" from {least:g}{what}"


def _bounds(scope: Scope, key: str) -> Mapping[str, Any]:
    """Return the limits of a parameter that its annotation declares separately from its type."""
    handler: Any = scope.get("route_handler")
    taken = {} if handler is None else handler.parsed_fn_signature.parameters
    about = getattr(taken.get(key), "kwarg_definition", None)
    names = ("ge", "le", "min_length", "max_length")
    return {name: getattr(about, name, None) for name in names}


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _wanted(scope: Scope, key: str) -> Iterator[types.Type]:
    """Return the types that a route accepts for a parameter, or for a path into the body."""
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
    """Yield the types that a value may have; for a union, each of its members."""
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
    """Return the allowed values of an enumeration, or the allowed keys of an object."""
    keys = [key for kind in wanted if isinstance(kind, types.DictType) for key in [kind.key_type]]
    found: list[str] = []
    for kind in (*wanted, *(one for key in keys for one in _kinds(key))):
        if isinstance(kind, types.LiteralType):
            found.extend(map(str, kind.values))
        elif isinstance(kind, types.EnumType):
            found.extend(str(one.value) for one in kind.cls)
    return found
