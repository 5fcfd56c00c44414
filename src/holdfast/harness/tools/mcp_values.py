"""Converts MCP results, tool annotations and names to Holdfast's values. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from .values import Ref, Risk, ToolResult, as_result

_LONGEST = 64


def tool_name(name: str) -> str:
    """Convert a string to a tool name that every model accepts. A name that is too long is
    truncated and gets a hash as suffix."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if len(plain) <= _LONGEST:
        return plain
    return f"{plain[: _LONGEST - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def risk_of(hints: Any) -> tuple[Risk | None, bool]:
    """Return a tool's risk, and whether a call of it may be repeated, from the hints of its server.
    Hints are not trusted: they never decide whether a call needs approval."""
    if hints is None:
        return None, False
    if hints.read_only_hint:
        return "read", True
    risk: Risk = "write" if hints.destructive_hint is False else "destructive"
    return risk, bool(hints.idempotent_hint)


def result_of(answer: Any) -> ToolResult:
    """Convert an MCP result to a tool result. The model reads the text content; the data is the
    structured content, together with images and audio if there are any (base64, unchanged)."""
    texts: list[str] = []
    media: list[dict[str, Any]] = []
    refs: list[Ref] = []
    for block in answer.content:
        if block.type == "text":
            texts.append(block.text)
        elif block.type in ("image", "audio"):
            media.append({"type": block.type, "media_type": block.mime_type, "data": block.data})
            texts.append(f"[{block.type}: {block.mime_type}]")
        elif block.type == "resource_link":
            refs.append(_ref(str(block.uri)))
            texts.append(f"[{block.name}: {block.uri}]")
        elif block.type == "resource":
            refs.append(_ref(str(block.resource.uri)))
            texts.append(_resource(block.resource, media))
    data = answer.structured_content
    if media:
        data = {"structured": data, "media": media}
    return as_result(
        ToolResult(content="\n".join(texts), data=data, refs=refs, failed=bool(answer.is_error))
    )


def _resource(resource: Any, media: list[dict[str, Any]]) -> str:
    if (text := getattr(resource, "text", None)) is not None:
        return str(text)
    kind = resource.mime_type or "application/octet-stream"
    media.append({"type": "resource", "media_type": kind, "data": resource.blob})
    return f"[{resource.uri}: {kind}]"


def _ref(uri: str) -> Ref:
    if uri.startswith("file://"):
        return Ref(kind="file", value=uri.removeprefix("file://"), role="evidence")
    kind = "url" if uri.startswith(("http://", "https://")) else "external"
    return Ref(kind=kind, value=uri, role="evidence")  # type: ignore[arg-type]
