"""Parameters with pydantic types: their JSON Schema, and validation by pydantic itself.

pydantic is optional: it is imported when a function uses one of its types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from .reading import Reader, join
from .values import Issue


def _pydantic() -> Any:
    return import_module("pydantic")


def reader(kind: Any) -> Reader:
    """Return a function that validates a JSON value as `kind`."""
    pydantic = _pydantic()
    adapter = pydantic.TypeAdapter(kind)

    def read(value: Any, path: str) -> tuple[Any, list[Issue]]:
        try:
            return adapter.validate_json(json.dumps(value)), []
        except pydantic.ValidationError as error:
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
    """Return the JSON Schema of each parameter's type, and the `$defs` that the schemas share. No
    name in these `$defs` is in `taken`."""
    adapter = _pydantic().TypeAdapter
    inputs = [(name, "validation", adapter(kind)) for name, kind in kinds.items()]
    prefix = ""
    while True:
        found, whole = adapter.json_schemas(inputs, ref_template=f"#/$defs/{prefix}{{model}}")
        definitions = {prefix + name: part for name, part in whole.get("$defs", {}).items()}
        if not taken & set(definitions):
            return {str(name): dict(part) for (name, _), part in found.items()}, definitions
        prefix += "_"


def default_of(field: Any) -> tuple[bool, Any]:
    """Return (True, None) if a parameter with this `Field(...)` is required, otherwise False and
    its default."""
    if field.is_required():
        return True, None
    return False, field.get_default(call_default_factory=True)
