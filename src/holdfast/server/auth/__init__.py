"""Callers and their scopes, API keys, audit records, limits, and idempotency keys."""

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
