"""Parameters whose types are pydantic's: their schema, and reading them by pydantic's own rules.
Imported only for a function that uses such types, so that nobody else needs pydantic."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from .reading import join
from .values import Issue

Reader = Callable[[Any, str], tuple[Any, list[Issue]]]


def reader(kind: Any) -> Reader:
    """Reads a JSON value as `kind`."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def read(value: Any, path: str) -> tuple[Any, list[Issue]]:
        try:
            return adapter.validate_json(json.dumps(value)), []
        except ValidationError as error:
            return None, [_issue(fault, path) for fault in error.errors(include_url=False)]
        except (TypeError, ValueError, RecursionError) as error:
            return None, [Issue(path, str(error))]

    return read


def _issue(fault: Mapping[str, Any], path: str) -> Issue:
    for name in fault["loc"]:
        path = join(path, name)
    return Issue(path, fault["msg"])


def schemas(
    kinds: Mapping[str, Any], taken: set[str]
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The schema of each type by its parameter, and the definitions that they share. No
    definition has a name of `taken`."""
    inputs = [(name, "validation", TypeAdapter(kind)) for name, kind in kinds.items()]
    prefix = ""
    while True:
        found, whole = TypeAdapter.json_schemas(
            inputs,  # type: ignore[arg-type]
            ref_template=f"#/$defs/{prefix}{{model}}",
            schema_generator=GenerateJsonSchema,
        )
        definitions = {prefix + name: part for name, part in whole.get("$defs", {}).items()}
        if not taken & set(definitions):
            return {str(name): dict(part) for (name, _), part in found.items()}, definitions
        prefix += "_"


def default_of(field: Any) -> tuple[bool, Any]:
    """Whether a parameter with this `Field(...)` must be given, and what it is otherwise."""
    if field.is_required():
        return True, None
    return False, field.get_default(call_default_factory=True)
