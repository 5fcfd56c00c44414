"""Converts errors of vendors to Holdfast's errors. A vendor's message may contain an API key or
text of a user, so it is not copied; the original error is only in `__cause__`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UserError,
)

from ...errors import HoldfastError, ModelError, ModelRateLimited, ModelTimeout, ModelUnavailable

WORD = re.compile(
    r"[a-z][a-z_]{2,39}"
)  # the format of a vendor's error code; no API key matches it
AGAIN = (409,)  # retryable, in addition to 408, 429 and 5xx


@contextmanager
def reported(ref: str, unexpected: type[ModelError], problem: str) -> Iterator[None]:
    """Convert every exception of a call to a `ModelError`. An unknown exception is converted to
    `unexpected`."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise _converted(ref, error) or unexpected(
            model=ref, problem=f"{problem} ({type(error).__name__})"
        ) from error


def _converted(ref: str, error: Exception) -> ModelError | None:
    if isinstance(error, TimeoutError):
        return ModelTimeout(model=ref, problem="the request timed out")
    if isinstance(error, UserError):  # pydantic-ai's own message, about the model and the tools
        return ModelError(
            model=ref, problem=f"the model does not support this call ({str(error)[:200]})"
        )
    if isinstance(error, UnexpectedModelBehavior):
        return ModelUnavailable(model=ref, problem="the answer is invalid")
    if isinstance(error, ModelAPIError):
        return _answered(ref, error, getattr(error, "status_code", None))
    return None


def _answered(ref: str, error: ModelAPIError, status: int | None) -> ModelError:
    said = _with_code(error, status)
    if isinstance(error, ModelQuotaExceededError):
        return ModelError(model=ref, problem=f"the account's quota is used up{said}", status=status)
    if isinstance(error, ModelRateLimitError) or status == 429:
        return ModelRateLimited(
            model=ref,
            problem=f"too many calls{said}",
            status=status,
            retry_after=error.retry_after,
        )
    if isinstance(error, (ModelTimeoutError, ModelRequestTimeout)) or status == 408:
        return ModelTimeout(model=ref, problem=f"the request timed out{said}", status=status)
    if isinstance(error, ModelConnectionError):
        return ModelUnavailable(model=ref, problem="the connection failed or was lost")
    refused = isinstance(error, ModelRequestRejectedError) or (status or 500) < 500
    if refused and status not in AGAIN:
        problem, remedy = _refusal(ref, error)
        return ModelError(model=ref, problem=f"{problem}{said}", status=status, remedy=remedy)
    return ModelUnavailable(model=ref, problem=f"the provider failed{said}", status=status)


def _refusal(ref: str, error: ModelAPIError) -> tuple[str, str | None]:
    """Return the problem with a rejected request, and a remedy if its cause is configuration."""
    vendor, _, name = ref.partition("/")
    if isinstance(error, ModelAuthenticationError):
        remedy = f"check the API key for {vendor!r} and its permissions"
        return "the provider rejected the API key", remedy
    if isinstance(error, ModelContextWindowExceededError):
        return "the prompt is too long for the model", None
    if isinstance(error, ModelNotFoundError):
        remedy = f"check the model name {name!r}, and the base URL of {vendor!r}"
        return "the provider does not have this model", remedy
    return "the provider rejected the call", None


def _with_code(error: ModelAPIError, status: int | None) -> str:
    words = [str(status)] if status is not None else []
    for word in (error.provider_error_code, error.provider_error_type):
        if word and WORD.fullmatch(word) and word not in words:
            words.append(word)
    return f" ({', '.join(words)})" if words else ""
