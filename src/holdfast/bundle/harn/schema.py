"""The JSON Schema of Harn's session bundle, version 1, generated from its types. Pure."""

from __future__ import annotations

import msgspec

from ..format import schema_of
from ..json_values import JsonObject
from .check import NESTED, ROOT
from .format import MODES, SCHEMA_ID, TYPE, VERSION, HarnBundle


def harn_schema() -> JsonObject:
    """Return the schema (draft 2020-12). It requires the fields that validation requires, and
    allows additional fields everywhere.

    See [other formats](../interchange.md).
    """
    schema = schema_of(HarnBundle, prefix="Harn")
    types = schema["$defs"]
    root = types["HarnBundle"]
    root["required"] = list(ROOT)
    root["properties"]["_type"] = {"const": TYPE}
    root["properties"]["schema_version"] = {
        "type": "integer",
        "minimum": VERSION,
        "maximum": VERSION,
    }
    for name in ("bundle_id", "created_at"):
        root["properties"][name] = {"type": "string", "minLength": 1}
    for name, required in NESTED.items():
        of = "RedactionManifest" if name == "redaction" else name.capitalize()
        types[of]["required"] = list(required)
    types["RedactionManifest"]["properties"]["mode"] = {"enum": list(MODES)}
    types["JsonEntry"]["required"] = ["source", "index", "value"]
    section = types["Section"]
    section["required"] = [name for name in section["properties"] if name != "summary"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Harn session bundle, version 1",
        **_without_titles(schema),
    }


def harn_schema_text() -> str:
    """Return the schema as the text of its published file.

    See [other formats](../interchange.md).
    """
    return msgspec.json.format(msgspec.json.encode(harn_schema()), indent=2).decode() + "\n"


def schema_is_stale(text: str | None) -> bool:
    """Return whether a stored schema is missing or differs from the schema of this release. Line
    endings are ignored.

    See [other formats](../interchange.md).
    """
    return text is None or text.replace("\r\n", "\n") != harn_schema_text()


def _without_titles(schema: JsonObject) -> JsonObject:
    for type in schema["$defs"].values():
        type.pop("title", None)
        type.pop("description", None)
    return schema
