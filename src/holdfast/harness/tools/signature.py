"""Reads the parameters of a tool from the signature of its function: their JSON Schema, how
arguments are parsed by type, and how the function is called."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec

from ...errors import InvalidValue
from . import pydantic_types
from .docstring import read_docstring
from .reading import Reader, is_union, members, read, unnamed
from .values import Issue

_NONE = inspect.Parameter.empty


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One argument that the model passes. `foreign` is true if pydantic handles its type."""

    name: str
    type: Any
    required: bool
    default: Any
    description: str
    foreign: bool
    reader: Reader


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The signature of a tool's function, which takes keyword arguments. `contexts` are the names
    of the parameters that receive the context of the call."""

    description: str
    schema: dict[str, Any]
    parameters: tuple[Parameter, ...]
    contexts: tuple[str, ...]

    def read(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Issue]]:
        """Parse the arguments by type and add defaults. Returns the values and every issue
        found."""
        names = {parameter.name for parameter in self.parameters}
        values: dict[str, Any] = {}
        issues = [
            Issue(str(name), "is not an argument of this tool")
            for name in arguments
            if name not in names
        ]
        for parameter in self.parameters:
            if parameter.name in arguments:
                value, faults = parameter.reader(arguments[parameter.name], parameter.name)
                values[parameter.name] = value
                issues += faults
            elif parameter.required:
                issues.append(Issue(parameter.name, "is missing"))
            else:
                values[parameter.name] = _fresh(parameter.default)
        return values, issues

    def call(self, function: Callable[..., Any], arguments: dict[str, Any], context: Any) -> Any:
        return function(**arguments, **dict.fromkeys(self.contexts, context))


def _fresh(default: Any) -> Any:
    """Copy a mutable default, so that a call cannot change it for the next call."""
    return deepcopy(default) if isinstance(default, list | dict | set) else default


def signature_of(
    function: Callable[..., Any], name: str, context: type, names: Mapping[str, Any]
) -> Signature:
    """Return the signature of `function`. Parameters of type `context` are not arguments of the
    tool; `names` resolves annotations that are not in the function's module. Raises `InvalidValue`
    if a model cannot pass a parameter."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _wrong(
            name, "is a generator", "return a value, and report progress with context.progress"
        )
    written = _written(function)
    documented = read_docstring(inspect.getdoc(written))
    hints = _hints(written, name, names)
    contexts, parameters = [], []
    for parameter in inspect.signature(function).parameters.values():
        where = f"{name}.{parameter.name}"
        kind = hints.get(parameter.name, _NONE)
        if _is_context(kind, context):
            contexts.append(parameter.name)
            continue
        _check(parameter, kind, where)
        said = documented.parameters.get(parameter.name, "")
        parameters.append(_parameter(parameter, kind, said, where))
    return Signature(
        description=documented.prose,
        schema=_schema(parameters, name),
        parameters=tuple(parameters),
        contexts=tuple(contexts),
    )


def _wrong(field: str, problem: str, remedy: str) -> InvalidValue:
    return InvalidValue(field=field, problem=problem, remedy=remedy)


def _written(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the annotated function inside a `partial` or a callable object."""
    while isinstance(function, partial):
        function = function.func
    plain = inspect.isfunction(function) or inspect.ismethod(function)
    return function if plain else type(function).__call__


def _hints(function: Callable[..., Any], name: str, names: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, localns=dict(names), include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise _wrong(
            name,
            f"has an annotation that cannot be resolved ({error})",
            "import the type at run time, not only under TYPE_CHECKING",
        ) from error


def _is_context(kind: Any, context: type) -> bool:
    if is_union(kind):
        return any(_is_context(part, context) for part in typing.get_args(kind))
    return context in getattr(kind, "__mro__", ())


def _check(parameter: inspect.Parameter, kind: Any, where: str) -> None:
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise _wrong(
            where, "is positional-only", "remove the slash, so that it can be passed by name"
        )
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise _wrong(
            where, "is a variable-length *parameter", "use one list, as in `items: list[str]`"
        )
    if parameter.kind is parameter.VAR_KEYWORD:
        raise _wrong(
            where,
            "is a variable-length **parameter",
            "use one dict, as in `options: dict[str, str]`",
        )
    if kind is _NONE:
        problem = "has no type"
        remedy = "annotate it, so that the model knows what to pass"
        if parameter.name == "self":
            remedy = "create the tool from a bound method: tool(thing.method)"
        raise _wrong(where, problem, remedy)


def _parameter(parameter: inspect.Parameter, kind: Any, said: str, where: str) -> Parameter:
    default, required = parameter.default, parameter.default is _NONE
    if _of_pydantic(default) and hasattr(default, "is_required"):  # x: int = Field(gt=0)
        kind = Annotated[kind, default]
        required, default = pydantic_types.default_of(default)
    foreign = uses_pydantic(kind)
    return Parameter(
        name=parameter.name,
        type=kind,
        required=required,
        default=default,
        description=_noted(kind) or said,
        foreign=foreign,
        reader=_reader(kind, foreign, where),
    )


def _reader(kind: Any, foreign: bool, where: str) -> Reader:
    try:
        if foreign:
            return pydantic_types.reader(kind)
        msgspec.json.schema(kind)
    except Exception as error:  # a user's type may raise anything
        raise _wrong(
            where,
            f"has a type that JSON Schema cannot describe ({error})",
            "use plain types, dataclasses, msgspec Structs or pydantic models",
        ) from error
    return partial(read, kind)


def _noted(kind: Any) -> str:
    """Return the text in an annotation such as `Annotated[int, "how many"]`."""
    notes = typing.get_args(kind)[1:] if typing.get_origin(kind) is Annotated else ()
    return next((note for note in notes if isinstance(note, str)), "")


def uses_pydantic(kind: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Return whether a type, or a type nested in it, is a pydantic type. Does not import
    pydantic."""
    kind = unnamed(kind)
    if typing.get_origin(kind) is Annotated:
        inner, *notes = typing.get_args(kind)
        return any(map(_of_pydantic, notes)) or uses_pydantic(inner, seen)
    origin = typing.get_origin(kind) or kind
    if not isinstance(origin, type) or origin in _PLAIN:
        return any(uses_pydantic(part, seen) for part in _within(kind))
    if kind in seen:
        return False
    if any(name in vars(base) for base in origin.__mro__ for name in _MARKS):
        return True
    return any(uses_pydantic(part, seen | {kind}) for part in _within(kind))


_PLAIN = (list, set, frozenset, tuple, dict)
_MARKS = ("__pydantic_core_schema__", "__get_pydantic_core_schema__", "__pydantic_validator__")


def _within(kind: Any) -> Iterator[Any]:
    yield from (part for part in typing.get_args(kind) if not isinstance(part, str | int | bytes))
    try:
        yield from (member.type for member in members(kind))
    except (NameError, TypeError):  # the reader of this type reports a field that does not resolve
        return


def _of_pydantic(note: Any) -> bool:
    kind = note if isinstance(note, type) else type(note)
    return kind.__module__.partition(".")[0] in ("pydantic", "annotated_types")


def _schema(parameters: list[Parameter], name: str) -> dict[str, Any]:
    plain = [parameter for parameter in parameters if not parameter.foreign]
    parts, definitions = msgspec.json.schema_components(
        [parameter.type for parameter in plain], ref_template="#/$defs/{name}"
    )
    found = {parameter.name: part for parameter, part in zip(plain, parts, strict=True)}
    if foreign := {p.name: p.type for p in parameters if p.foreign}:
        theirs, more = pydantic_types.schemas(foreign, set(definitions))
        found |= theirs
        definitions = {**definitions, **more}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {p.name: _property(p, found[p.name]) for p in parameters},
        "required": [parameter.name for parameter in parameters if parameter.required],
        "additionalProperties": False,
    }
    return {**schema, "$defs": definitions} if definitions else schema


def _property(parameter: Parameter, schema: dict[str, Any]) -> dict[str, Any]:
    schema = dict(schema)
    if parameter.description and "description" not in schema:
        schema["description"] = parameter.description
    if not parameter.required:
        schema |= _default(parameter.default)
    return schema


def _default(value: Any) -> dict[str, Any]:
    """Return the default for a JSON Schema, or an empty dict if it cannot be encoded as JSON."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    try:
        return {"default": msgspec.json.decode(msgspec.json.encode(value))}
    except (TypeError, ValueError, OverflowError):
        return {}


def is_async(function: Callable[..., Any]) -> bool:
    called = type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
