"""Converts a JSON value to a Python type, or lists every issue with it.

msgspec stops at the first error. Therefore, if a value cannot be converted, its elements or fields
are converted one by one, each to its own type, to find every issue and its path.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias, Union

import msgspec

from .values import ROOT, Issue

Reader: TypeAlias = Callable[[Any, str], tuple[Any, list[Issue]]]
_SEQUENCES = (list, set, frozenset, tuple)


class Member(NamedTuple):
    """A field of a Struct, dataclass or TypedDict."""

    name: str
    type: Any
    required: bool


def read(kind: Any, value: Any, path: str) -> tuple[Any, list[Issue]]:
    """Convert `value` to the type `kind`. Returns the result and no issues, or None and every issue
    with the value. `path` is the path of the value in the arguments."""
    try:
        return msgspec.convert(value, kind, str_keys=True), []
    except RecursionError:
        return None, [Issue(path, "is nested too deeply")]
    except (msgspec.ValidationError, OverflowError, UnicodeError) as error:
        try:
            return None, _parts(kind, value, path, error) or [_issue(error, path)]
        except RecursionError:
            return None, [Issue(path, "is nested too deeply")]


def _parts(kind: Any, value: Any, path: str, error: Exception) -> list[Issue]:
    """Return the issues with the elements or fields of `value`, after the issue with the value as a
    whole, if it has one."""
    found = [issue for issues in _each(_plain(kind, value), value, path) for issue in issues]
    own = _issue(error, path)
    if found and own.path == path and "missing required" not in own.problem:
        found.insert(0, own)
    return found


def _each(kind: Any, value: Any, path: str) -> Iterator[list[Issue]]:
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if isinstance(value, list) and origin in _SEQUENCES:
        for n, (part, item) in enumerate(
            zip(_kinds(origin, arguments, value), value, strict=False)
        ):
            yield read(part, item, join(path, n))[1]
    elif isinstance(value, dict) and isinstance(origin, type) and issubclass(origin, Mapping):
        if typing.is_typeddict(kind):
            yield from _fields(kind, value, path)
        elif arguments:
            for name, item in value.items():
                yield [*_entry(arguments, name, item, path)]
    elif isinstance(value, dict):
        yield from _fields(kind, value, path)


def _entry(arguments: tuple[Any, ...], name: str, item: Any, path: str) -> Iterator[Issue]:
    try:
        msgspec.convert({name: None}, types.GenericAlias(dict, (arguments[0], Any)), str_keys=True)
    except msgspec.ValidationError as error:
        yield Issue(join(path, name), f"has an invalid key: {_issue(error, path).problem}")
    yield from read(arguments[1], item, join(path, name))[1]


def _fields(kind: Any, value: dict[str, Any], path: str) -> Iterator[list[Issue]]:
    for member in members(kind):
        where = join(path, member.name)
        if member.name in value:
            yield read(member.type, value[member.name], where)[1]
        elif member.required:
            yield [Issue(where, "is missing")]


def _kinds(origin: Any, arguments: tuple[Any, ...], value: list[Any]) -> list[Any]:
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return list(arguments)
    return [arguments[0] if arguments else Any] * len(value)


def members(kind: Any) -> list[Member]:
    """Return the fields of a Struct, a dataclass or a TypedDict; empty for any other type."""
    origin = typing.get_origin(kind) or kind
    if not isinstance(origin, type):
        return []
    if issubclass(origin, msgspec.Struct):
        if origin.__struct_config__.array_like:
            return []
        return [Member(f.encode_name, f.type, f.required) for f in msgspec.structs.fields(kind)]
    if typing.is_typeddict(origin):
        hints = typing.get_type_hints(origin, include_extras=True)
        required: frozenset[str] = getattr(origin, "__required_keys__", frozenset())
        return [Member(name, _given(hint), name in required) for name, hint in hints.items()]
    if dataclasses.is_dataclass(origin):
        hints = typing.get_type_hints(origin, include_extras=True)
        return [
            Member(field.name, hints[field.name], _needed(field))
            for field in dataclasses.fields(origin)
            if field.init
        ]
    return []


def _given(hint: Any) -> Any:
    """Return the type of a field of a TypedDict, without `Required` or `NotRequired`."""
    if typing.get_origin(hint) in (typing.Required, typing.NotRequired):
        return typing.get_args(hint)[0]
    return hint


def _needed(field: dataclasses.Field[Any]) -> bool:
    none = dataclasses.MISSING
    return field.default is none and field.default_factory is none


def _plain(kind: Any, value: Any) -> Any:
    """Return a type without `Annotated` and aliases. For a union, return the member that fits
    `value`, or None if no member or more than one fits."""
    kind = unnamed(kind)
    if typing.get_origin(kind) is Annotated:
        return _plain(typing.get_args(kind)[0], value)
    if not is_union(kind):
        return kind
    plain = [_plain(part, value) for part in typing.get_args(kind) if part is not type(None)]
    meant = [part for part in plain if _fits(part, value)]
    return meant[0] if len(meant) == 1 else None


def unnamed(kind: Any) -> Any:
    """Resolve a `NewType` or a `type` alias to the type it refers to."""
    while hasattr(kind, "__supertype__") or type(kind).__name__ == "TypeAliasType":
        kind = kind.__supertype__ if hasattr(kind, "__supertype__") else kind.__value__
    return kind


def is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (Union, types.UnionType)


def _fits(kind: Any, value: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    if isinstance(value, list):
        return origin in _SEQUENCES
    if not (isinstance(value, dict) and isinstance(origin, type)):
        return False
    if issubclass(origin, msgspec.Struct):
        config = origin.__struct_config__
        return config.tag is None or value.get(config.tag_field or "type") == config.tag
    return issubclass(origin, Mapping) or bool(members(kind))


def _issue(error: Exception, path: str) -> Issue:
    """Create an issue from msgspec's message; its path, such as `$.a[0]`, is appended to `path`."""
    text, _, place = str(error).rpartition(" - at `")
    if not text:
        return Issue(path, str(error))
    for name in re.findall(r"[^.\[\]]+|\.\.\.", place.rstrip("`").removeprefix("$")):
        path = join(path, "*" if name == "..." else name)
    return Issue(path, text)


def join(path: str, name: object) -> str:
    return str(name) if path == ROOT else f"{path}.{name}"
