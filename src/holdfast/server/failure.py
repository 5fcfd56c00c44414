"""What becomes of errors: every failure leaves in one envelope, and none says more than it may."""

from __future__ import annotations

import logging
import re
import traceback
from typing import Any

import msgspec
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.types import Scope
from msgspec import Struct

from ..errors import (
    HarnessClosed,
    HoldfastError,
    InvalidValue,
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
from ..redact import Redactor
from ..wire import failed, status_of

LOGGER = logging.getLogger("holdfast.server")
JSON = "application/json"
MISSING = re.compile(r"Missing required (\w+) parameter '([\w-]+)'")
SHOWN = 200  # characters of a path or a value that an error repeats


class Answer(Struct, frozen=True):
    """A failure as it leaves."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    code: str


def answer(error: Exception, scope: Scope, request: str, redactor: Redactor) -> Answer:
    """The answer to a request that failed. What is the server's own fault is logged, and told
    by the request's id alone."""
    known = known_as(error, scope)
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
    return Answer(status, headers, body, known.code)


def known_as(error: Exception, scope: Scope) -> HoldfastError:
    """The error of ours that stands for whatever happened."""
    path = scope.get("path", "")[:SHOWN]
    match error:
        case HoldfastError():
            return error
        case ValidationException():
            return _invalid(error)
        case NotFoundException():
            return NoRoute(path=path)
        case MethodNotAllowedException():
            allowed = (error.headers or {}).get("allow", "")
            return MethodNotAllowed(
                method=str(scope.get("method", "")),
                allowed=sorted(filter(None, allowed.split(", "))),
            )
        case HTTPException(status_code=413):
            return RequestTooLarge(limit=0)
        case HTTPException(status_code=415):
            return UnsupportedMedia(found="?", wanted=JSON)
        case HTTPException() if error.status_code < 500:
            detail = str(error.detail)[:SHOWN]
            return InvalidValue(field="body", problem=detail, remedy="see /v1/openapi.json")
    return ServerError()


def _invalid(error: ValidationException) -> InvalidValue:
    """The first of the things that are wrong with a request, and where it is."""
    if (missing := MISSING.match(str(error.detail))) is not None:
        source, field = missing.groups()
        return InvalidValue(field=field, problem=f"is missing ({source})", remedy="give it")
    extra: Any = error.extra
    first = extra[0] if isinstance(extra, list) and extra else {}
    first = first if isinstance(first, dict) else {}
    field = str(first.get("key") or "body").removeprefix("data.")
    problem = str(first.get("message") or "is not as it should be")
    source = str(getattr(first.get("source"), "value", first.get("source") or "request"))
    if "matching regex" in problem:
        problem = "has characters that cannot be used here"
    if field == "data":
        field = "body"
        problem = "is missing" if problem == "'data'" else problem
    remedy = "see /v1/openapi.json for what is taken here"
    return InvalidValue(field=field, problem=f"{problem} ({source})", remedy=remedy)


def _shown(error: HoldfastError, request: str) -> HoldfastError:
    """The error as strangers may see it: of a database, only that it failed."""
    if type(error) is ServerError and error.reason is None:
        return ServerError(problem=f"the server failed; its log has more under {request}")
    if isinstance(error, StoreError) and status_of(error) >= 500:
        kind = type(error)
        fields = {**error.fields, "problem": f"the store failed; the log has more under {request}"}
        return kind(**fields)
    return error


def _log(error: Exception, scope: Scope, request: str, redactor: Redactor) -> None:
    text = "".join(traceback.format_exception(error))
    LOGGER.error(
        "request %s failed: %s %s: %s",
        request,
        scope.get("method", ""),
        redactor.text(scope.get("path", "")),
        redactor.text(text),
    )
