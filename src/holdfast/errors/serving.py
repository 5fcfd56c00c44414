"""Errors of servers."""

from __future__ import annotations

from dataclasses import dataclass

from .root import HoldfastError, instead


@dataclass(eq=False, kw_only=True)
class InvalidSettings(HoldfastError):
    """The settings of a server are invalid. All faults are listed."""

    code = "invalid_settings"

    faults: list[str]

    def __str__(self) -> str:
        listed = "".join(f"\n- {fault}" for fault in self.faults)
        return f"the settings of the server are invalid:{listed}"


@dataclass(eq=False, kw_only=True)
class Unauthorized(HoldfastError):
    """The request has no key, or one that is invalid, expired or revoked."""

    code = "unauthorized"

    problem: str = "a valid key is required"

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class Forbidden(HoldfastError):
    """The caller is not allowed to do this; `scope` is the scope that a key needs for it."""

    code = "forbidden"

    problem: str
    scope: str | None = None

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class NoRoute(HoldfastError):
    """The server has no route for this path."""

    code = "not_found"

    path: str

    def __str__(self) -> str:
        return f"no route matches path {self.path!r}"


@dataclass(eq=False, kw_only=True)
class MethodNotAllowed(HoldfastError):
    """The route does not support this HTTP method."""

    code = "method_not_allowed"

    method: str
    allowed: list[str]

    def __str__(self) -> str:
        return f"method {self.method} is not allowed here: use {', '.join(self.allowed)}"


@dataclass(eq=False, kw_only=True)
class UnsupportedMedia(HoldfastError):
    """The content type of a request body is not supported."""

    code = "unsupported_media_type"

    found: str
    wanted: str

    def __str__(self) -> str:
        return f"content type {self.found!r} is not supported here: send {self.wanted}"


@dataclass(eq=False, kw_only=True)
class RequestTooLarge(HoldfastError):
    """The body of a request is too large; it was not read."""

    code = "request_too_large"

    limit: int

    def __str__(self) -> str:
        return f"the request body is too large: send at most {self.limit} bytes"


@dataclass(eq=False, kw_only=True)
class RequestTooSlow(HoldfastError):
    """The body of a request did not arrive in time; nothing was done."""

    code = "request_too_slow"
    retryable = True

    seconds: float

    def __str__(self) -> str:
        return f"the request body did not arrive within {self.seconds:g} seconds: retry"


@dataclass(eq=False, kw_only=True)
class RateLimited(HoldfastError):
    """A rate limit was exceeded: `limit` of `what`. Retry in `retry_after` seconds."""

    code = "rate_limited"
    retryable = True

    what: str
    limit: float
    retry_after: float

    def __str__(self) -> str:
        limit = f"{self.limit:g} {self.what}"
        return f"the limit of {limit} is exceeded: retry in {self.retry_after:g} seconds"


@dataclass(eq=False, kw_only=True)
class KeyReused(HoldfastError):
    """The idempotency key was already used for another request; nothing was done."""

    code = "key_reused"

    key: str

    def __str__(self) -> str:
        return f"idempotency key {self.key!r} was used for another request: use a new key"


@dataclass(eq=False, kw_only=True)
class UnknownEngine(HoldfastError):
    """The server has no such engine: use one of `available`."""

    code = "unknown_engine"

    engine: str
    available: list[str]

    def __str__(self) -> str:
        return f"unknown engine {self.engine!r}; {instead(self.engine, self.available)}"


@dataclass(eq=False, kw_only=True)
class UnknownAgent(HoldfastError):
    """The server has no such agent: use one of `available`."""

    code = "unknown_agent"

    agent: str
    available: list[str]

    def __str__(self) -> str:
        return f"unknown agent {self.agent!r}; {instead(self.agent, self.available)}"


@dataclass(eq=False, kw_only=True)
class UnknownLoader(HoldfastError):
    """The server has no such loader of agents: use one of `available`."""

    code = "unknown_loader"

    loader: str
    available: list[str]

    def __str__(self) -> str:
        return f"unknown loader {self.loader!r}; {instead(self.loader, self.available)}"


@dataclass(eq=False, kw_only=True)
class ServerError(HoldfastError):
    """A server failed, or gave an error code that this client does not know: `reason` is the code,
    `status` the HTTP status."""

    code = "server_error"

    problem: str = "the server failed"
    status: int | None = None
    reason: str | None = None

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class ServerUnavailable(ServerError):
    """A server could not be reached, or did not respond, until the client's timeout. The request
    may have arrived: retry the same call with the same idempotency key."""

    code = "server_unavailable"
    retryable = True

    problem: str = "the server cannot be reached"


@dataclass(eq=False, kw_only=True)
class WrongServer(ServerError):
    """The program at this address is not a Holdfast server: another program, a proxy's page, or a
    redirect."""

    code = "wrong_server"

    problem: str = "the program at this address is not a Holdfast server"
