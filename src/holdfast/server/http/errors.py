"""Error responses. All errors have the same format, and no error contains internal details of the
server."""

from __future__ import annotations

import logging
import traceback

import msgspec
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.types import Scope
from msgspec import Struct

from ...errors import (
    HarnessClosed,
    HoldfastError,
    KeyMissing,
    MethodNotAllowed,
    ModelRateLimited,
    NoRoute,
    RateLimited,
    RequestTooLarge,
    ServerError,
    StoreError,
    Unauthorized,
    UnsupportedMedia,
)
from ...redact import Redactor
from ...wire import failed, status_of
from ..placement.absence_guard import StoreUnasked
from ..placement.store_names import StoreNames
from .validation import invalid_request, unreadable

LOGGER = logging.getLogger("holdfast.server")
JSON = "application/json"
SHOWN = 200  # characters of a path or a value that an error quotes


class ErrorResponse(Struct, frozen=True):
    """An error as an HTTP response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    code: str


def answer(
    error: Exception,
    scope: Scope,
    request: str,
    redactor: Redactor,
    naming: StoreNames | None = None,
) -> ErrorResponse:
    """Return the response for an error. An internal error is logged; its response contains only the
    id of the request."""
    known = (naming or StoreNames()).error(known_as(error, scope))
    status = status_of(known)
    if status >= 500 and not isinstance(known, HarnessClosed):
        _log(error, scope, request, redactor)
    headers = [("content-type", JSON)]
    if isinstance(known, MethodNotAllowed):
        headers.append(("allow", ", ".join(known.allowed)))
    elif isinstance(known, Unauthorized):
        headers.append(("www-authenticate", 'Bearer realm="holdfast"'))
    elif isinstance(known, (RateLimited, ModelRateLimited)) and known.retry_after is not None:
        headers.append(("retry-after", str(max(1, round(known.retry_after)))))
    body = msgspec.json.encode(failed(_shown(known, request)))
    return ErrorResponse(status, headers, body, known.code)


def known_as(error: Exception, scope: Scope) -> HoldfastError:
    """Convert any exception to a `HoldfastError`."""
    path = scope.get("path", "")[:SHOWN]
    match error:
        case HoldfastError():
            return error
        case ValidationException():
            return invalid_request(error, scope)
        case NotFoundException():
            return NoRoute(path=path)
        case MethodNotAllowedException():
            allowed = {*filter(None, (error.headers or {}).get("allow", "").split(", "))}
            if "GET" in allowed:
                allowed.add("HEAD")
            return MethodNotAllowed(method=str(scope.get("method", "")), allowed=sorted(allowed))
        case HTTPException(status_code=413):
            return RequestTooLarge(limit=0)
        case HTTPException(status_code=415):
            return UnsupportedMedia(found="?", wanted=JSON)
        case HTTPException() if error.status_code < 500:
            body = scope.get("state", {}).get("body", b"")
            return unreadable(str(error.detail)[:SHOWN], body)
    return ServerError()


def _shown(error: HoldfastError, request: str) -> HoldfastError:
    """Return the error that is sent to the client. Errors of a store are replaced by a general
    message."""
    if type(error) is ServerError and error.reason is None:
        return ServerError(problem=f"the server failed: look for request {request} in its log")
    if isinstance(error, StoreUnasked):
        return error
    if isinstance(error, StoreError) and status_of(error) >= 500:
        kind = type(error)
        fields = {
            **error.fields,
            "problem": f"the store failed: look for request {request} in the server's log",
        }
        if isinstance(error, KeyMissing):
            fields["key"] = ""
        return kind(**fields)
    return error


def _causes(error: BaseException) -> str:
    """Format an error and its causes on one line."""
    said = " ".join(str(error).split())
    return said if error.__cause__ is None else f"{said} <- {_causes(error.__cause__)}"


def _log(error: Exception, scope: Scope, request: str, redactor: Redactor) -> None:
    # A temporary error is one line in the log; any other has a traceback.
    passes = isinstance(error, HoldfastError) and error.retryable
    text = _causes(error) if passes else "".join(traceback.format_exception(error))
    LOGGER.error(
        "request %s failed: %s %s: %s",
        request,
        scope.get("method", ""),
        redactor.text(scope.get("path", "")),
        redactor.text(text),
    )
