"""Who asks: what a request shows goes in, a `Caller` comes out, or nobody. A caller has a tenant,
a principal in it, and the scopes that say what it may do."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Protocol

from msgspec import Struct

from ...errors import Forbidden, InvalidValue
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
    "admin",
)
# What a key has if nothing else is said: one's own sessions, and no say about what waits.
USUAL = ("sessions:read", "sessions:write", "files:read", "files:write")
RESERVED = "~"  # tenants that begin with this are the server's own
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
LOCAL = ("localhost", "127.0.0.1", "[::1]", "::1")


class Credentials(Struct, frozen=True, kw_only=True):
    """What a request shows of itself. Names of headers are lower-case; `address` is the peer's."""

    method: str
    path: str
    headers: Mapping[str, str]
    address: str | None = None

    def bearer(self) -> str | None:
        """The token of `Authorization: Bearer`, if there is one."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        token = token.strip()
        return token if scheme.lower() == "bearer" and token else None


class Caller(Struct, frozen=True, kw_only=True):
    """Somebody that the server knows. `key` is the id of the key, never the key."""

    tenant: str
    principal: str
    scopes: frozenset[str]
    key: str | None = None

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def need(self, scope: str) -> None:
        """Go on only with this scope (`Forbidden`)."""
        if not self.may(scope):
            raise Forbidden(problem=f"this needs the scope {scope}", scope=scope)


class Known:
    """Tokens by which somebody was known, the latest so many; as hashes."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._hashes: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, shown: Credentials) -> bool:
        token = shown.bearer()
        return token is not None and _hash(token) in self._hashes

    def add(self, shown: Credentials) -> None:
        if (token := shown.bearer()) is not None:
            self._hashes[_hash(token)] = None
            self._hashes.move_to_end(_hash(token))
            while len(self._hashes) > self._room:
                self._hashes.popitem(last=False)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


class AuthHandler(Protocol):
    """Tells who asks. Yours may look into tokens of any sort."""

    async def authenticate(self, shown: Credentials) -> Caller | None:
        """Whoever it is, or None: then the answer is 401."""
        ...


class SharedSecret:
    """One secret that all clients have; they are one principal. Compared in constant time."""

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
                field="secret", problem="is too short", remedy="use at least 16 characters"
            )
        self._secret = secret.encode()
        self._caller = caller(tenant, principal, scopes)

    def __repr__(self) -> str:
        return "SharedSecret(…)"

    async def authenticate(self, shown: Credentials) -> Caller | None:
        given = (shown.bearer() or "").encode("utf-8", "surrogateescape")
        return self._caller if hmac.compare_digest(given, self._secret) else None


class LocalTokenAuth:
    """The user of this machine that started the server, by the token that only they can read (see
    `holdfast.local_token`). All who have it are one principal. Without a token, nobody is known."""

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
        """The same, with this token."""
        about = self._caller
        return LocalTokenAuth(token, tenant=about.tenant, principal=about.principal)

    async def authenticate(self, shown: Credentials) -> Caller | None:
        given = (shown.bearer() or "").encode("utf-8", "surrogateescape")
        known = self._token is not None and hmac.compare_digest(given, self._token)
        return self._caller if known else None


class NoAuth:
    """Everybody on this machine, and nobody else: a request must come from a loopback address,
    be meant for one, and have passed no proxy, so that no page of the web reaches it."""

    def __init__(self, *, tenant: str = "main", principal: str = "local") -> None:
        self._caller = caller(tenant, principal, SCOPES)

    async def authenticate(self, shown: Credentials) -> Caller | None:
        host = shown.headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        proxied = any(header in shown.headers for header in FORWARDED)
        origin = shown.headers.get("origin", "null").rpartition("://")[2]
        foreign = "origin" in shown.headers and not is_local(origin)
        here = is_loopback(shown.address) and name in LOCAL and not proxied and not foreign
        return self._caller if here else None


def is_local(host: str) -> bool:
    """Whether a host, with its port or without, is this machine by name."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name in LOCAL


@lru_cache(maxsize=1_024)
def is_loopback(address: str | None) -> bool:
    """Whether an address is one of this machine alone."""
    if address == "localhost":
        return True
    try:
        return address is not None and ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def caller(
    tenant: str, principal: str, scopes: Collection[str] | Iterable[str], key: str | None = None
) -> Caller:
    """A caller, if tenant, principal and scopes are such (`InvalidValue`)."""
    check_tenant(tenant)
    check_name("principal", principal, limit=256)
    return Caller(tenant=tenant, principal=principal, scopes=check_scopes(scopes), key=key)


def check_tenant(tenant: str) -> None:
    """Refuse a tenant that is the server's own."""
    check_name("tenant", tenant, limit=256)
    if tenant.startswith(RESERVED):
        raise InvalidValue(
            field="tenant", problem=f"begins with {RESERVED!r}", remedy="use another name"
        )


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes, if there are such."""
    given = frozenset(scopes)
    if unknown := sorted(given - {*SCOPES}):
        raise InvalidValue(
            field="scopes",
            problem=f"there is no scope {unknown[0]!r}",
            remedy=f"use some of {', '.join(SCOPES)}",
        )
    return given
