"""Converts errors to HTTP responses and back. All error responses have the same JSON format, and
clients raise the same exception class as the server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from .. import errors
from ..errors import HoldfastError, ServerError

# The HTTP status of each error code; all other errors are 500.
STATUS: dict[str, int] = {
    "invalid_value": 400,
    "unknown_store": 400,
    "unknown_engine": 400,
    "unknown_agent": 400,
    "unknown_loader": 400,
    "outside_sandbox": 400,
    "invalid_bundle": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "session_not_found": 404,
    "blob_not_found": 404,
    "not_pending": 404,
    "no_such_file": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_too_slow": 408,
    "session_exists": 409,
    "session_moved": 409,
    "phase_error": 409,
    "surface_taken": 409,
    "deletion_refused": 409,
    "head_moved": 409,
    "log_replaced": 409,
    "lease_lost": 409,
    "lease_held": 409,
    "session_busy": 409,
    "already_decided": 409,
    "unsafe_point": 409,
    "tool_missing": 409,
    "key_reused": 409,
    "not_continuable": 409,
    "request_too_large": 413,
    "unsupported_media_type": 415,
    "sandbox_failed": 422,
    "rate_limited": 429,
    "queue_full": 429,
    "missing_extra": 501,
    "model_failed": 502,
    "store_unavailable": 503,
    "server_unavailable": 503,
    "harness_closed": 503,
    "model_unavailable": 503,
    "model_rate_limited": 503,
    "model_timeout": 503,
}


class Failure(Struct, frozen=True, kw_only=True):
    """The JSON form of an error. Programs should use `code` and `fields`; `message` is for
    users."""

    code: str
    message: str
    fields: dict[str, Any] = {}
    retryable: bool = False
    docs: str = ""


class Failed(Struct, frozen=True):
    """The body of every error response."""

    error: Failure


def status_of(error: HoldfastError) -> int:
    """Return the HTTP status of an error."""
    for cls in type(error).__mro__:
        code = cls.__dict__.get("code")
        if code in STATUS:
            return STATUS[code]
    return 500


def failed(error: HoldfastError) -> Failed:
    """Convert an error to the body of an error response. An error with status 503 is always marked
    as retryable, because another server may be able to handle the request."""
    fields = {name: _plain(value) for name, value in error.fields.items()}
    again = error.retryable or status_of(error) == 503
    return Failed(
        Failure(
            code=error.code, message=str(error), fields=fields, retryable=again, docs=error.docs
        )
    )


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value, enc_hook=str)
    except (TypeError, ValueError):
        return str(value)


def error_of(body: bytes, status: int) -> HoldfastError:
    """Convert an error response to an exception of the class that the server raised.

    An unknown error code, or a body in another format, becomes a `ServerError`.
    """
    try:
        failure = msgspec.json.decode(body, type=Failed).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ServerError(
            problem=f"the server returned status {status} without an error body", status=status
        )
    cls = CLASSES.get(failure.code)
    if cls is not None:
        with contextlib.suppress(TypeError, msgspec.ValidationError):  # of another version
            return _made(cls, failure.fields)
    return ServerError(problem=failure.message, status=status, reason=failure.code)


def _made(cls: type[HoldfastError], fields: dict[str, Any]) -> HoldfastError:
    types = get_type_hints(cls)
    known = {name: value for name, value in fields.items() if name in types}
    return cls(**{name: msgspec.convert(value, types[name]) for name, value in known.items()})


def _all(root: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield root
    for cls in root.__subclasses__():
        if cls.__module__.startswith(errors.__name__):
            yield from _all(cls)


CLASSES = {cls.code: cls for cls in _all(HoldfastError)}
