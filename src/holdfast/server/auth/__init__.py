"""Who asks, what they may, how much, and once: callers, keys, audit, limits, idempotency."""

from .callers import (
    SCOPES,
    USUAL,
    AuthHandler,
    Caller,
    Credentials,
    LocalTokenAuth,
    NoAuth,
    SharedSecret,
    caller,
)

__all__ = [
    "SCOPES",
    "USUAL",
    "AuthHandler",
    "Caller",
    "Credentials",
    "LocalTokenAuth",
    "NoAuth",
    "SharedSecret",
    "caller",
]
