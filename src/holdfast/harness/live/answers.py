"""Checks an answer against the JSON Schema of its question, without I/O.

Only the JSON Schema keywords that questions and types use are supported: `type`, `enum`, `items`,
`required`, `properties`, `anyOf`, and `$ref` within the schema. The tool checks everything else.
"""

from __future__ import annotations

from typing import Any

DEFS = "#/$defs/"
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def mismatch(
    schema: Any,
    value: Any,
    path: str = "the answer",
    named: dict[str, Any] | None = None,
) -> str | None:
    """Return a description of how `value` violates `schema`, or None if it is valid. `path` is the
    name of the value in that description. `named` are the schemas that `$ref` can refer to
    (default: the schema's own `$defs`)."""
    if not isinstance(schema, dict):
        return None  # a schema that is not a dict, such as `true`, allows any value
    named = schema.get("$defs", {}) if named is None else named
    if (found := named.get(str(schema.get("$ref", "")).removeprefix(DEFS))) is not None:
        return mismatch(found, value, path, named)
    if choices := schema.get("anyOf"):
        wrong = [mismatch(choice, value, path, named) for choice in choices]
        return None if None in wrong else "; or ".join(filter(None, wrong))
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds or []
    if names and not any(_is(name, value) for name in names):
        return f"{path} is {type(value).__name__}, not {' or '.join(names)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{path} is {value!r}, not one of {', '.join(map(repr, schema['enum']))}"
    return _parts(schema, value, path, named)


def _is(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES.get(name, (object,)))


def _parts(schema: dict[str, Any], value: Any, path: str, named: dict[str, Any]) -> str | None:
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for n, item in enumerate(value):
            if (wrong := mismatch(schema["items"], item, f"{path}[{n}]", named)) is not None:
                return wrong
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                return f"{path} lacks {name!r}"
        for name, part in schema.get("properties", {}).items():
            inside = f"{path}.{name}"
            if name in value and (wrong := mismatch(part, value[name], inside, named)) is not None:
                return wrong
    return None
