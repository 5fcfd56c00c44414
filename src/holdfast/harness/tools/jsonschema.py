"""Tools whose arguments are defined by a JSON Schema. The function takes one dict, validated by the
whole schema (extra properties, lengths, patterns, ranges). Needs the package `jsonschema`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...errors import InvalidValue, MissingExtra
from .reading import join
from .values import ROOT, Issue

_WORDS = 300  # characters of the message of one issue


@dataclass(frozen=True, kw_only=True)
class SchemaForm:
    """Validates arguments by a JSON Schema, and passes them to the function as one dict. If
    `with_context` is true, the function takes the context as second argument."""

    schema: dict[str, Any]
    validator: Any
    with_context: bool

    @classmethod
    def of(cls, schema: dict[str, Any], function: Callable[..., Any], name: str) -> SchemaForm:
        """Return the `SchemaForm` for this schema and function. Raises `InvalidValue` if the schema
        is invalid or does not describe an object."""
        return cls(
            schema=schema,
            validator=_validator(schema, name),
            with_context=_takes(function, name) > 1,
        )

    def read(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Issue]]:
        from referencing.exceptions import Unresolvable  # noqa: PLC0415

        try:
            errors = sorted(self.validator.iter_errors(arguments), key=lambda e: str(e.json_path))
        except RecursionError:
            return {}, [Issue(ROOT, "is nested too deeply")]
        except Unresolvable as error:
            problem = f"cannot be validated: the tool's schema has an unknown $ref {error.ref!r}"
            return {}, [Issue(ROOT, problem)]
        found = [issue for error in errors for issue in _issues(error)]
        return dict(arguments), list(dict.fromkeys(found))

    def call(self, function: Callable[..., Any], arguments: dict[str, Any], context: Any) -> Any:
        return function(arguments, context) if self.with_context else function(arguments)


def _wrong(name: str, problem: str) -> InvalidValue:
    return InvalidValue(
        field=f"{name}.schema",
        problem=problem,
        remedy="pass a self-contained JSON Schema of an object",
    )


def _validator(schema: dict[str, Any], name: str) -> Any:
    try:
        jsonschema: Any = import_module("jsonschema")
        registry = import_module("jsonschema_specifications").REGISTRY
    except ImportError as error:
        raise MissingExtra(extra="mcp", needed_for="a tool from a JSON Schema") from error
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise _wrong(name, "does not describe an object")
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise _wrong(name, f"is invalid at {error.json_path}: {_short(error.message)}") from error
    # Without an explicit registry, the validator would download remote `$ref` targets.
    return kind(schema, registry=registry, format_checker=kind.FORMAT_CHECKER)


def _takes(function: Callable[..., Any], name: str) -> int:
    parameters = list(inspect.signature(function).parameters.values())
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    if needed or not 1 <= len(places) <= 2:
        raise InvalidValue(
            field=name,
            problem="must take a dict of arguments and optionally a context",
            remedy="declare it as f(arguments) or f(arguments, context)",
        )
    return len(places)


def _issues(error: Any) -> Iterator[Issue]:
    path = ROOT
    for part in error.absolute_path:
        path = join(path, part)
    if error.validator == "required":
        for name in error.validator_value:
            if name not in error.instance:
                yield Issue(join(path, name), "is missing")
    elif error.validator == "additionalProperties" and error.validator_value is False:
        for name in _extra(error.instance, error.schema):
            yield Issue(join(path, name), "is not an argument of this tool")
    else:
        yield Issue(path, _short(error.message))


def _extra(instance: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name in instance:
        if name not in known and not any(re.search(pattern, name) for pattern in patterns):
            yield name


def _short(text: str) -> str:
    return text if len(text) <= _WORDS else f"{text[:_WORDS]} …"
