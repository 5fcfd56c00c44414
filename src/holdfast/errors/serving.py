"""Errors of servers."""

from __future__ import annotations

from dataclasses import dataclass

from .root import HoldfastError, instead, listed


@dataclass(eq=False, kw_only=True)
class InvalidSettings(HoldfastError):
    """The settings of a server are invalid. All faults are listed.

    What to do: [`invalid_settings`](../errors.md#invalid_settings).
    """

    code = "invalid_settings"

    faults: list[str]

    def __str__(self) -> str:
        return f"the settings of the server are invalid:{listed(self.faults)}"


@dataclass(eq=False, kw_only=True)
class Unauthorized(HoldfastError):
    """The request has no key, or its key is invalid, expired or revoked.

    What to do: [`unauthorized`](../errors.md#unauthorized).
    """

    code = "unauthorized"
    template = "{problem}"

    problem: str = "a valid key is required"


@dataclass(eq=False, kw_only=True)
class Forbidden(HoldfastError):
    """The caller is not allowed to do this. `scope` is the scope that the caller's key must
    have.

    What to do: [`forbidden`](../errors.md#forbidden).
    """

    code = "forbidden"
    template = "{problem}"

    problem: str
    scope: str | None = None


@dataclass(eq=False, kw_only=True)
class NoRoute(HoldfastError):
    """The server has no route for this path.

    What to do: [`not_found`](../errors.md#not_found).
    """

    code = "not_found"
    template = "no route matches path {path!r}"

    path: str


@dataclass(eq=False, kw_only=True)
class MethodNotAllowed(HoldfastError):
    """The route does not support this HTTP method.

    What to do: [`method_not_allowed`](../errors.md#method_not_allowed).
    """

    code = "method_not_allowed"

    method: str
    allowed: list[str]

    def __str__(self) -> str:
        return f"method {self.method} is not allowed here: use {', '.join(self.allowed)}"


@dataclass(eq=False, kw_only=True)
class UnsupportedMedia(HoldfastError):
    """The content type of a request body is not supported.

    What to do: [`unsupported_media_type`](../errors.md#unsupported_media_type).
    """

    code = "unsupported_media_type"
    template = "content type {found!r} is not supported here: send {wanted}"

    found: str
    wanted: str


@dataclass(eq=False, kw_only=True)
class RequestTooLarge(HoldfastError):
    """The body of a request is too large and was not read.

    What to do: [`request_too_large`](../errors.md#request_too_large).
    """

    code = "request_too_large"
    template = "the request body is too large: send at most {limit} bytes"

    limit: int


@dataclass(eq=False, kw_only=True)
class RequestTooSlow(HoldfastError):
    """The body of a request did not arrive in time. The request was not processed.

    What to do: [`request_too_slow`](../errors.md#request_too_slow).
    """

    code = "request_too_slow"
    retryable = True
    template = "the request body did not arrive within {seconds:g} seconds: retry"

    seconds: float


@dataclass(eq=False, kw_only=True)
class RateLimited(HoldfastError):
    """A rate limit was exceeded. `limit` is the allowed number of `what`; retry after `retry_after`
    seconds.

    What to do: [`rate_limited`](../errors.md#rate_limited).
    """

    code = "rate_limited"
    retryable = True
    template = "the limit of {limit:g} {what} is exceeded: retry in {retry_after:g} seconds"

    what: str
    limit: float
    retry_after: float


@dataclass(eq=False, kw_only=True)
class KeyReused(HoldfastError):
    """The idempotency key was already used for another request. The request was not processed.

    What to do: [`key_reused`](../errors.md#key_reused).
    """

    code = "key_reused"
    template = "idempotency key {key!r} was used for another request: use a new key"

    key: str


@dataclass(eq=False, kw_only=True)
class UnknownEngine(HoldfastError):
    """The server has no engine with this name. `available` lists the engines.

    What to do: [`unknown_engine`](../errors.md#unknown_engine).
    """

    code = "unknown_engine"

    engine: str
    available: list[str]

    def __str__(self) -> str:
        return f"unknown engine {self.engine!r}: {instead(self.engine, self.available)}"


@dataclass(eq=False, kw_only=True)
class UnknownAgent(HoldfastError):
    """The server has no agent with this name. `available` lists the agents.

    What to do: [`unknown_agent`](../errors.md#unknown_agent).
    """

    code = "unknown_agent"

    agent: str
    available: list[str]

    def __str__(self) -> str:
        return f"unknown agent {self.agent!r}: {instead(self.agent, self.available)}"


@dataclass(eq=False, kw_only=True)
class UnknownLoader(HoldfastError):
    """The server has no agent loader with this name. `available` lists the loaders.

    What to do: [`unknown_loader`](../errors.md#unknown_loader).
    """

    code = "unknown_loader"

    loader: str
    available: list[str]

    def __str__(self) -> str:
        return f"unknown loader {self.loader!r}: {instead(self.loader, self.available)}"


@dataclass(eq=False, kw_only=True)
class ServerError(HoldfastError):
    """A server failed, or returned an error code that this client does not recognize. `reason` is
    the code, `status` the HTTP status.

    What to do: [`server_error`](../errors.md#server_error).
    """

    code = "server_error"
    template = "{problem}"

    problem: str = "the server failed"
    status: int | None = None
    reason: str | None = None


@dataclass(eq=False, kw_only=True)
class ServerUnavailable(ServerError):
    """A server could not be reached or did not respond before the client's timeout. The request may
    have arrived: retry the same call with the same idempotency key.

    What to do: [`server_unavailable`](../errors.md#server_unavailable).
    """

    code = "server_unavailable"
    retryable = True

    problem: str = "the server cannot be reached"


@dataclass(eq=False, kw_only=True)
class WrongServer(ServerError):
    """The response did not come from a Holdfast server, but from another program, a proxy or a
    redirect.

    What to do: [`wrong_server`](../errors.md#wrong_server).
    """

    code = "wrong_server"

    problem: str = "the program at this address is not a Holdfast server"
