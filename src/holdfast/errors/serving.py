"""What a server refuses, and how it fails."""

from __future__ import annotations

from dataclasses import dataclass

from .root import HoldfastError, instead


@dataclass(eq=False, kw_only=True)
class InvalidSettings(HoldfastError):
    """A server cannot be run with these settings. Every fault is listed."""

    code = "invalid_settings"

    faults: list[str]

    def __str__(self) -> str:
        return "the server cannot be run:" + "".join(f"\n- {fault}" for fault in self.faults)


@dataclass(eq=False, kw_only=True)
class Unauthorized(HoldfastError):
    """The server does not know who asks: no key, or one that is wrong, expired or revoked."""

    code = "unauthorized"

    problem: str = "a valid key is needed"

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class Forbidden(HoldfastError):
    """Whoever asks may not do this; `scope` is what a key would need for it."""

    code = "forbidden"

    problem: str
    scope: str | None = None

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class NoRoute(HoldfastError):
    """The server has nothing at this path."""

    code = "not_found"

    path: str

    def __str__(self) -> str:
        return f"there is nothing at {self.path!r}"


@dataclass(eq=False, kw_only=True)
class MethodNotAllowed(HoldfastError):
    """What is at this path takes other methods."""

    code = "method_not_allowed"

    method: str
    allowed: list[str]

    def __str__(self) -> str:
        return f"{self.method} is not possible here: use {', '.join(self.allowed)}"


@dataclass(eq=False, kw_only=True)
class UnsupportedMedia(HoldfastError):
    """The body of a request is of a type that is not taken here."""

    code = "unsupported_media_type"

    found: str
    wanted: str

    def __str__(self) -> str:
        return f"a body of type {self.found!r} is not taken here: send {self.wanted}"


@dataclass(eq=False, kw_only=True)
class RequestTooLarge(HoldfastError):
    """The body of a request has more bytes than are taken here; nothing of it was read."""

    code = "request_too_large"

    limit: int

    def __str__(self) -> str:
        return f"the body of a request may have {self.limit} bytes"


@dataclass(eq=False, kw_only=True)
class RequestTooSlow(HoldfastError):
    """The body of a request did not come in time; nothing was done."""

    code = "request_too_slow"
    retryable = True

    seconds: float

    def __str__(self) -> str:
        return f"the body of a request must be here within {self.seconds:g} seconds"


@dataclass(eq=False, kw_only=True)
class RateLimited(HoldfastError):
    """Too much at once: `limit` of `what` are allowed. Try again in `retry_after` seconds."""

    code = "rate_limited"
    retryable = True

    what: str
    limit: float
    retry_after: float

    def __str__(self) -> str:
        return f"{self.limit:g} {self.what} are allowed: try again in {self.retry_after:g} seconds"


@dataclass(eq=False, kw_only=True)
class KeyReused(HoldfastError):
    """The idempotency key stands for another request already; nothing was done."""

    code = "key_reused"

    key: str

    def __str__(self) -> str:
        return f"key {self.key!r} was used for another request: use a new key for a new request"


@dataclass(eq=False, kw_only=True)
class UnknownEngine(HoldfastError):
    """No engine of this name runs here: ask for one of `available`."""

    code = "unknown_engine"

    engine: str
    available: list[str]

    def __str__(self) -> str:
        return f"there is no engine {self.engine!r}; {instead(self.engine, self.available)}"


@dataclass(eq=False, kw_only=True)
class UnknownAgent(HoldfastError):
    """No agent of this name is served here: ask for one of `available`."""

    code = "unknown_agent"

    agent: str
    available: list[str]

    def __str__(self) -> str:
        return f"there is no agent {self.agent!r}; {instead(self.agent, self.available)}"


@dataclass(eq=False, kw_only=True)
class UnknownLoader(HoldfastError):
    """Agents are not loaded in this way here: use one of `available`."""

    code = "unknown_loader"

    loader: str
    available: list[str]

    def __str__(self) -> str:
        return f"there is no loader {self.loader!r}; {instead(self.loader, self.available)}"


@dataclass(eq=False, kw_only=True)
class ServerError(HoldfastError):
    """A server failed, or said something that this client does not know: `reason` is the code
    that it gave, `status` that of HTTP."""

    code = "server_error"

    problem: str = "the server failed"
    status: int | None = None
    reason: str | None = None

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class ServerUnavailable(ServerError):
    """A server could not be reached, or did not answer, for as long as the client was to try. What
    was sent may have arrived: the same call, with the same key, may be made again."""

    code = "server_unavailable"
    retryable = True

    problem: str = "the server cannot be reached"


@dataclass(eq=False, kw_only=True)
class WrongServer(ServerError):
    """What answers a client at its address is no Holdfast server: another program, a page of a
    proxy, or an address that sends elsewhere."""

    code = "wrong_server"

    problem: str = "what answers is no Holdfast server"
