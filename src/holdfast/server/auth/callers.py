"""Authentication: determines the `Caller` of a request from its credentials. A caller has a tenant,
a principal in that tenant, and scopes, which say what it may do."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from ...errors import Forbidden, InvalidValue
from ...local_token import is_loopback
from ...log.codec import check_name

SCOPES = (
    "sessions:read",
    "sessions:write",
    "sessions:all",
    "pending:decide",
    "files:read",
    "files:write",
    "people:erase",
    "bundles",
    "webhooks",
    "admin",
)
# The default scopes of a key: its own sessions, without deciding pending items.
USUAL = ("sessions:read", "sessions:write", "files:read", "files:write")
RESERVED = "~"  # tenants with this prefix are reserved for the server
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
LOCAL = ("localhost", "127.0.0.1", "[::1]", "::1")


class RequestCredentials(Struct, frozen=True, kw_only=True):
    """The credentials of a request. Header names are in lower case; `address` is the client's
    address.

    See [the server](../server.md).
    """

    method: str
    path: str
    headers: Mapping[str, str]
    address: str | None = None

    def bearer(self) -> str | None:
        """Return the token of the `Authorization: Bearer` header, if there is one."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        token = token.strip()
        return token if scheme.lower() == "bearer" and token else None

    def has_token(self, token: bytes) -> bool:
        """Return whether this token was sent. Compares in constant time."""
        given = (self.bearer() or "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, token)


class Caller(Struct, frozen=True, kw_only=True):
    """An authenticated client. `key` is the id of its API key, never the secret.

    See [the server](../server.md).
    """

    tenant: str
    principal: str
    scopes: frozenset[str]
    key: str | None = None

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def need(self, scope: str) -> None:
        """Raise `Forbidden` if the caller does not have this scope."""
        if not self.may(scope):
            raise Forbidden(problem=f"this request needs the scope {scope}", scope=scope)


class AuthHandler(Protocol):
    """Authenticates requests. Implement your own to accept other kinds of tokens.

    See [the server](../server.md).
    """

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        """Return the caller, or None to respond with 401."""
        ...


class SharedSecret:
    """Authenticates all clients by one secret, as the same principal. The secret is compared in
    constant time.

    ```python
    app = create_app(agents=[agent], auth=SharedSecret(os.environ["SHOP_SECRET"]))
    ```
    """

    def __init__(
        self,
        secret: str,
        *,
        tenant: str = "main",
        principal: str = "shared-secret",
        scopes: Iterable[str] = SCOPES,
    ) -> None:
        if len(secret) < 16:
            raise InvalidValue(
                field="secret",
                problem=f"is too short ({len(secret)} characters)",
                remedy="use at least 16",
            )
        self._secret = secret.encode()
        self._caller = caller(tenant, principal, scopes)

    def __repr__(self) -> str:
        return "SharedSecret(…)"

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        return self._caller if shown.has_token(self._secret) else None

    def accepted(self) -> list[tuple[str, Caller]]:
        """Return the hash of the secret, with its caller."""
        return [(hashlib.sha256(self._secret).hexdigest(), self._caller)]


class LocalTokenAuth:
    """Authenticates the user who started the server, by a token in a file that only this user can
    read (see `holdfast.local_token`). Rejects all callers until a token is set."""

    def __init__(
        self, token: str | None = None, *, tenant: str = "main", principal: str = "local"
    ) -> None:
        self._token = None if token is None else token.encode()
        self._caller = caller(tenant, principal, SCOPES)

    def __repr__(self) -> str:
        return "LocalTokenAuth(…)"

    @property
    def ready(self) -> bool:
        """Whether a token is set."""
        return self._token is not None

    def taking(self, token: str) -> LocalTokenAuth:
        """Return a copy that uses this token."""
        about = self._caller
        return LocalTokenAuth(token, tenant=about.tenant, principal=about.principal)

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        known = self._token is not None and shown.has_token(self._token)
        return self._caller if known else None

    def accepted(self) -> list[tuple[str, Caller]]:
        """Return the hash of the token, with its caller."""
        if self._token is None:
            return []
        return [(hashlib.sha256(self._token).hexdigest(), self._caller)]


class NoAuth:
    """Accepts every caller on this machine and no other: a request must come from a loopback
    address, have a loopback host name, and not come through a proxy. This prevents web pages from
    reaching the server.

    See [the server](../server.md).
    """

    def __init__(self, *, tenant: str = "main", principal: str = "local") -> None:
        self._caller = caller(tenant, principal, SCOPES)

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        headers = shown.headers
        proxied = any(header in headers for header in FORWARDED)
        origin = headers.get("origin", "null").rpartition("://")[2]
        foreign = "origin" in headers and not is_local(origin)
        here = is_loopback(shown.address) and is_local(headers.get("host", ""))
        return self._caller if here and not proxied and not foreign else None


def is_local(host: str) -> bool:
    """Return whether a host name, with or without a port, refers to this machine."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name in LOCAL


def caller(tenant: str, principal: str, scopes: Iterable[str]) -> Caller:
    """Create a caller. Raises `InvalidValue` if the tenant, the principal or a scope is invalid."""
    check_tenant(tenant)
    check_name("principal", principal, limit=256)
    return Caller(tenant=tenant, principal=principal, scopes=check_scopes(scopes))


def check_tenant(tenant: str) -> None:
    """Reject a tenant whose name is reserved for the server."""
    check_name("tenant", tenant, limit=256)
    if tenant.startswith(RESERVED):
        raise InvalidValue(
            field="tenant",
            problem=f"{tenant!r} begins with {RESERVED!r}, which is reserved for the server",
            remedy="use another name",
        )


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Return the scopes, and reject unknown scopes."""
    given = frozenset(scopes)
    if unknown := sorted(given - {*SCOPES}):
        raise InvalidValue(
            field="scopes",
            problem=f"{unknown[0]!r} is not a scope",
            remedy=f"use {', '.join(SCOPES)}",
        )
    return given
