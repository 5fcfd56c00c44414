"""Authentication: from the credentials of a request to its `Caller`. A caller has a tenant, a
principal in that tenant, and scopes, which say what it may do."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Protocol

from msgspec import Struct

from ...errors import Forbidden, InvalidValue
from ...log.codec import check_name
from ..recent import RecentMap

SCOPES = (
    "sessions:read",
    "sessions:write",
    "sessions:all",
    "pending:decide",
    "files:read",
    "files:write",
    "people:erase",
    "bundles",
    "admin",
)
# The default scopes of a key: its own sessions, without deciding pending items.
USUAL = ("sessions:read", "sessions:write", "files:read", "files:write")
RESERVED = "~"  # tenants with this prefix are reserved for the server
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
LOCAL = ("localhost", "127.0.0.1", "[::1]", "::1")


class RequestCredentials(Struct, frozen=True, kw_only=True):
    """The credentials of a request. Header names are lower-case; `address` is the client's."""

    method: str
    path: str
    headers: Mapping[str, str]
    address: str | None = None

    def bearer(self) -> str | None:
        """The token of the header `Authorization: Bearer`, if there is one."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        token = token.strip()
        return token if scheme.lower() == "bearer" and token else None


class Caller(Struct, frozen=True, kw_only=True):
    """An authenticated client. `key` is the id of its API key, never the key itself."""

    tenant: str
    principal: str
    scopes: frozenset[str]
    key: str | None = None

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def need(self, scope: str) -> None:
        """Raise `Forbidden` without this scope."""
        if not self.may(scope):
            raise Forbidden(problem=f"this needs the scope {scope}", scope=scope)


class KnownTokens:
    """The hashes of the tokens that were accepted last."""

    def __init__(self, room: int) -> None:
        self._hashes: RecentMap[bytes, None] = RecentMap(room)

    def __contains__(self, shown: RequestCredentials) -> bool:
        token = shown.bearer()
        return token is not None and _hash(token) in self._hashes

    def add(self, shown: RequestCredentials) -> None:
        if (token := shown.bearer()) is not None:
            self._hashes[_hash(token)] = None


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


class AuthHandler(Protocol):
    """Authenticates requests. Your own handler may accept tokens of any kind."""

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        """The caller, or None for the response 401."""
        ...


class SharedSecret:
    """One secret for all clients, who are one principal. Compared in constant time."""

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
        given = (shown.bearer() or "").encode("utf-8", "surrogateescape")
        return self._caller if hmac.compare_digest(given, self._secret) else None


class LocalTokenAuth:
    """Authenticates the user who started the server, by a token in a file that only they can read
    (see `holdfast.local_token`). Without a token, no caller is accepted."""

    def __init__(
        self, token: str | None = None, *, tenant: str = "main", principal: str = "local"
    ) -> None:
        self._token = None if token is None else token.encode()
        self._caller = caller(tenant, principal, SCOPES)

    def __repr__(self) -> str:
        return "LocalTokenAuth(…)"

    @property
    def ready(self) -> bool:
        """Whether it has a token."""
        return self._token is not None

    def taking(self, token: str) -> LocalTokenAuth:
        """A copy with this token."""
        about = self._caller
        return LocalTokenAuth(token, tenant=about.tenant, principal=about.principal)

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        given = (shown.bearer() or "").encode("utf-8", "surrogateescape")
        known = self._token is not None and hmac.compare_digest(given, self._token)
        return self._caller if known else None


class NoAuth:
    """Accepts everybody on this machine and nobody else: a request must come from a loopback
    address, name one as its host, and not come through a proxy, so that no web page reaches it."""

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
    """Whether a host, with or without a port, names this machine."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name in LOCAL


@lru_cache(maxsize=1_024)
def is_loopback(address: str | None) -> bool:
    """Whether an address is a loopback address."""
    if address == "localhost":
        return True
    try:
        return address is not None and ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def caller(
    tenant: str, principal: str, scopes: Collection[str] | Iterable[str], key: str | None = None
) -> Caller:
    """A caller with a valid tenant, principal and scopes (`InvalidValue`)."""
    check_tenant(tenant)
    check_name("principal", principal, limit=256)
    return Caller(tenant=tenant, principal=principal, scopes=check_scopes(scopes), key=key)


def check_tenant(tenant: str) -> None:
    """Reject a reserved tenant."""
    check_name("tenant", tenant, limit=256)
    if tenant.startswith(RESERVED):
        raise InvalidValue(
            field="tenant",
            problem=f"{tenant!r} begins with {RESERVED!r}, which is reserved for the server",
            remedy="use another name",
        )


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes, if all of them exist."""
    given = frozenset(scopes)
    if unknown := sorted(given - {*SCOPES}):
        raise InvalidValue(
            field="scopes",
            problem=f"{unknown[0]!r} is not a scope",
            remedy=f"use {', '.join(SCOPES)}",
        )
    return given
