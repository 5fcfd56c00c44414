"""Routes for the OpenAPI document, which is generated from the routes and the types of their
bodies."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Litestar, MediaType, Request, Response, Router, get

from ... import wire
from ...bundle import Imported
from ...bundle.format import plain_description
from ...values.delta import TextPieces
from ...values.display import Display
from ...values.pending import Decision
from ...values.records import Receipt
from ...values.result import Result
from ...values.status import Status
from ..http.headers import base_of
from ..http.middleware import STREAM
from ..http.reference_page import POLICY, page
from .inspection import SHOWN

PUBLIC = {"public": True}
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Repeating a request with the same key returns the first response again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
CHANGES = ("post", "put", "patch", "delete")
BYTES = {"schema": {"type": "string", "format": "binary"}}
BUNDLE = {"required": True, "content": {"application/zip": BYTES, "application/json": {}}}
FILE = {"required": False, "content": {"application/octet-stream": BYTES}}
ARCHIVE = {
    "required": True,
    "content": {"application/gzip": BYTES, "application/octet-stream": BYTES},
}
# Bodies that are not JSON, by operation.
RAW = {
    **{"import_bundle": BUNDLE, "validate_bundle": BUNDLE},
    **{"write_file": FILE, "restore_files": ARCHIVE},
}
STREAMED = {"schema": {"type": "string", "description": "Server-sent events."}}
STREAMS = ("follow_changes", "ai_sdk_chat", "ai_sdk_resume", "ag_ui_run")
OPEN = ("health", "ready")  # operations that need no key
OTHERS = (Imported, Display, Decision, Result, Status, Receipt)
REF = "#/components/schemas/{name}"


# The error responses of every route, by their status.
FAILURES = {
    "400": "the request is invalid",
    "401": "the key is missing or invalid",
    "403": "the caller is not allowed to do this",
    "404": "not found, or it belongs to another user",
    "405": "the path does not support this method",
    "408": "the body was sent too slowly",
    "409": "the request conflicts with the current state",
    "413": "the body is too large",
    "415": "the body has an unsupported type",
    "422": "the sandbox does not support this operation",
    "429": "too many requests",
    "500": "the server failed",
    "501": "an optional package is missing on the server",
    "502": "a model call failed",
    "503": "temporarily unavailable: try again later",
}


class NoLitestarPages(Router):
    """Disables Litestar's own documentation pages, because their error responses have a different
    format."""

    def register(self, value: Any) -> list[Any]:
        return []


def document(app: Litestar, base: str = "") -> dict[str, Any]:
    """Build the OpenAPI document of an app that is mounted at `base`. Paths and parameters come
    from Litestar, types from msgspec, which validates the requests."""
    found: dict[str, Any] = app.openapi_schema.to_schema()
    found["servers"] = [{"url": base or "/"}]
    shapes = [value for value in vars(wire).values() if _is_shape(value)]
    _, types = msgspec.json.schema_components(
        [*shapes, *OTHERS], ref_template=REF, schema_hook=_hook
    )
    for shape in types.values():
        if "description" in shape:
            shape["description"] = plain_description(shape["description"])
    found["components"]["schemas"].update(types)
    found["components"]["schemas"]["DisplayShown"] = {"$ref": REF.format(name="Display")}
    content = {"application/json": {"schema": {"$ref": REF.format(name="Failed")}}}
    failures = {code: {"description": why, "content": content} for code, why in FAILURES.items()}
    for path in found["paths"].values():
        for method, operation in path.items():
            # Litestar describes its own error format.
            operation["responses"].pop("400", None)
            operation["responses"] = {**failures, **operation["responses"]}
            if operation["operationId"] in OPEN:
                operation["security"] = []
            if (body := RAW.get(operation["operationId"])) is not None:
                operation["requestBody"] = body
            if operation["operationId"] == "get_events":
                operation["responses"]["200"]["content"][STREAM] = STREAMED
            if operation["operationId"] in STREAMS:
                operation["responses"]["200"]["content"] = {STREAM: {}}
            if operation["operationId"] == "get_blob":
                operation["responses"]["200"]["content"].update(dict.fromkeys(SHOWN, BYTES))
            if method in CHANGES:
                operation.setdefault("parameters", []).append(KEY)
    return found


def _is_shape(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, msgspec.Struct)


def _hook(kind: type) -> dict[str, Any]:
    if kind is TextPieces:
        return {"type": "string"}
    raise NotImplementedError


@get("/openapi.json", opt=PUBLIC, include_in_schema=False, sync_to_thread=False)
def api(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the OpenAPI document of this server."""
    found = document(request.app, base_of(request.scope))
    return Response(msgspec.json.encode(found), media_type=MediaType.JSON)


@get("/docs", opt=PUBLIC, include_in_schema=False, sync_to_thread=False)
def docs(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the OpenAPI document as an HTML page."""
    found = msgspec.to_builtins(document(request.app, base_of(request.scope)), str_keys=True)
    headers = {"content-security-policy": POLICY}
    return Response(page(found).encode(), media_type=MediaType.HTML, headers=headers)


HANDLERS: list[Any] = [api, docs]
