"""Renders the OpenAPI document as a page of plain HTML, without scripts or external resources, so
that it can be read offline."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0 1rem; }
td, th { border-bottom: 1px solid #8884; padding: 0.25rem 0.75rem 0.25rem 0; text-align: left;
  vertical-align: top; }
section { margin-bottom: 2.5rem; }
h3 { margin-bottom: 0; }
nav li { list-style: none; }
.method { display: inline-block; min-width: 4.5rem; font-weight: bold; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } a { color: #8bf; } }
"""
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
METHODS = ("get", "put", "post", "patch", "delete", "head", "options")
CHECKS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern")
FAILS = 400  # the first status of an error


def page(document: Mapping[str, Any]) -> str:
    """Render an OpenAPI document as an HTML page."""
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    return "\n".join(
        (
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            _prose(info.get("description")),
            '<p>The same as <a href="openapi.json">an OpenAPI document</a>.</p>',
            *_contents(document),
            *_failures(document),
            "<h2>Requests</h2>",
            *(line for one in _operations(document) for line in _operation(*one)),
            "<h2>Types</h2>",
            *(
                line
                for name, shape in sorted(document["components"]["schemas"].items())
                for line in _type(name, shape)
            ),
            "</body></html>",
        )
    )


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, operations in sorted(document["paths"].items()):
        for method in METHODS:
            if method in operations:
                yield method, path, operations[method]


def _contents(document: Mapping[str, Any]) -> Iterator[str]:
    yield "<nav><h2>Contents</h2><ul>"
    for method, path, operation in _operations(document):
        id = escape(operation["operationId"])
        name = f'<span class="method">{method.upper()}</span> <code>{escape(path)}</code>'
        yield f'<li><a href="#{id}">{name}</a></li>'
    yield "</ul></nav>"


def _failures(document: Mapping[str, Any]) -> Iterator[str]:
    """Render the error responses, which are the same for all requests."""
    found: dict[str, str] = {}
    for _, _, operation in _operations(document):
        for status, answer in operation["responses"].items():
            if int(status) >= FAILS:
                found.setdefault(status, answer.get("description", ""))
    yield "<h2>Failures</h2>"
    yield "<p>Every request may fail. All error responses have the same shape.</p>"
    yield from _table(
        ("status", "meaning"), ((escape(s), _text(why)) for s, why in sorted(found.items()))
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    id = escape(operation["operationId"])
    yield f'<section id="{id}"><h3>{method.upper()} <code>{escape(path)}</code></h3>'
    yield f"<p><code>{id}</code></p>{_prose(operation.get('description'))}"
    rows = [_parameter(one) for one in operation.get("parameters", ())]
    if rows:
        yield from _table(("parameter", "in", "type", ""), rows)
    if (body := operation.get("requestBody")) is not None:
        yield f"<p>Body: {_content(body.get('content', {}))}</p>"
    for status, answer in sorted(operation["responses"].items()):
        if int(status) < FAILS:
            about = _text(answer.get("description", ""))
            yield f"<p>{escape(status)}: {about} {_content(answer.get('content', {}))}</p>"
    yield "</section>"


def _parameter(one: Mapping[str, Any]) -> tuple[str, ...]:
    required = " (required)" if one.get("required") else ""
    kind = _kind(one.get("schema", {}))
    return f"<code>{escape(one['name'])}</code>{required}", escape(one["in"]), kind, _about(one)


def _content(content: Mapping[str, Any]) -> str:
    kinds = (
        f"<code>{escape(kind)}</code> {_kind(it.get('schema'))}" for kind, it in content.items()
    )
    return ", or ".join(kinds)


def _type(name: str, shape: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section id="type-{escape(name)}"><h3><code>{escape(name)}</code></h3>'
    yield _prose(shape.get("description"))
    required = {*shape.get("required", ())}
    rows = [
        (
            f"<code>{escape(field)}</code>{' (required)' if field in required else ''}",
            _kind(about),
            _about(about),
        )
        for field, about in shape.get("properties", {}).items()
    ]
    if rows:
        yield from _table(("field", "type", ""), rows)
    else:
        yield f"<p>{_kind({**shape, 'title': None})}</p>"
    yield "</section>"


def _kind(shape: Any) -> str:
    """Render a type as text, with links to named types."""
    if not isinstance(shape, Mapping):
        return "anything"
    if (ref := shape.get("$ref")) is not None:
        name = escape(str(ref).rpartition("/")[2])
        return f'<a href="#type-{name}">{name}</a>'
    for several in ("oneOf", "anyOf"):
        if several in shape:
            return " or ".join(map(_kind, shape[several]))
    if "enum" in shape:
        return " or ".join(_value(value) for value in shape["enum"])
    kind = shape.get("type", "anything")
    words = escape(" or ".join(map(str, kind)) if isinstance(kind, list) else str(kind))
    if words == "array":
        return f"list of {_kind(shape.get('items'))}"
    more = shape.get("additionalProperties")
    return f"{words} of {_kind(more)}" if words == "object" and isinstance(more, Mapping) else words


def _about(one: Mapping[str, Any]) -> str:
    """Render the description, default and limits of a parameter or a field."""
    shape = one.get("schema", one)
    found = [_text(one.get("description") or shape.get("description") or "")]
    if shape.get("default") is not None:
        found.append(f"Default: {_value(shape['default'])}.")
    found += [f"{check}: {_value(shape[check])}." for check in CHECKS if shape.get(check)]
    return " ".join(filter(None, found))


def _value(value: Any) -> str:
    return f"<code>{escape(json.dumps(value, ensure_ascii=False))}</code>"


def _prose(text: str | None) -> str:
    return f"<p>{_text(text)}</p>" if text else ""


def _text(text: str) -> str:
    """Render text in which backquotes mark code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))


def _table(names: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "<table><tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</table>"
