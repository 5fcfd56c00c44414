"""Whether an answer fits what was asked. Pure.

Of a JSON Schema the words that questions use are known here: `type`, `enum`, `items`,
`required`, `properties`; whatever else stands in it is for the tool to check.
"""

from __future__ import annotations

from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def mismatch(schema: dict[str, Any], value: Any, path: str = "the answer") -> str | None:
    """What is wrong with `value`, in words, or None."""
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds or []
    if names and not any(_is(name, value) for name in names):
        return f"{path} is {type(value).__name__}, not {' or '.join(names)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{path} is {value!r}, not one of {', '.join(map(repr, schema['enum']))}"
    return _parts(schema, value, path)


def _is(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES.get(name, (object,)))


def _parts(schema: dict[str, Any], value: Any, path: str) -> str | None:
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for n, item in enumerate(value):
            if (wrong := mismatch(schema["items"], item, f"{path}[{n}]")) is not None:
                return wrong
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                return f"{path} lacks {name!r}"
        for name, part in schema.get("properties", {}).items():
            inside = f"{path}.{name}"
            if name in value and (wrong := mismatch(part, value[name], inside)) is not None:
                return wrong
    return None
