"""Authentication, API keys, audit records, rate limits, and idempotency keys."""

from .callers import (
    SCOPES,
    USUAL,
    AuthHandler,
    Caller,
    LocalTokenAuth,
    NoAuth,
    RequestCredentials,
    SharedSecret,
    caller,
)

__all__ = [
    "SCOPES",
    "USUAL",
    "AuthHandler",
    "Caller",
    "LocalTokenAuth",
    "NoAuth",
    "RequestCredentials",
    "SharedSecret",
    "caller",
]
