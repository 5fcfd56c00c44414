"""Logins of browsers: a signed cookie that stands for a credential, and the rules for requests that
authenticate with it.

The cookie contains who logged in, until when, and a keyed hash of the credential, never the
credential itself. The signing key is in a log of the default store, so that all replicas share it
and a restart logs nobody out. The credential is checked again with every request: a cookie ends
with the key that it was made for.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec import Struct

from ...environment import wall_clock
from ...errors import Forbidden, HeadMoved
from ...local_token import random_text
from ...log import events as ev
from ...log.events import Key, NewEvent, new_id
from ...stores.port import Store
from ..recent import RecentMap
from .callers import Caller, RequestCredentials

TENANT = "~console"
COOKIE = "holdfast"  # + the port
HEADER = "holdfast-console"  # a header that pages of other origins cannot send
SAFE = ("GET", "HEAD", "OPTIONS")
LASTS = 12 * 3_600  # seconds until one must log in again
FRESH = 5.0  # seconds that the check for a logout is cached
KNOWN = 10_000
SECRET = 43
SIGNING = "signing"  # the log with the signing key; logs of logouts have the id of the login


class Login(Struct, frozen=True, kw_only=True):
    """What a cookie says: who logged in, with which API key, and until when (UTC ms). `proof` is a
    keyed hash of the credential."""

    id: str
    tenant: str
    principal: str
    scopes: list[str]
    proof: str
    until: int
    key: str | None = None

    def caller(self) -> Caller:
        """Return the caller who logged in, as of the login."""
        scopes = frozenset(self.scopes)
        return Caller(tenant=self.tenant, principal=self.principal, scopes=scopes, key=self.key)


class SigningKey(Struct, frozen=True, kw_only=True):
    """The event payload for the key that signs cookies."""

    secret: str


class Logins:
    """Makes and checks the cookies of logged-in browsers."""

    def __init__(
        self, store: Callable[[], Awaitable[Store]], *, clock: Callable[[], int] = wall_clock
    ) -> None:
        self._store, self._clock = store, clock
        self._secret: bytes | None = None
        self._ended: RecentMap[str, tuple[float, bool]] = RecentMap(KNOWN)

    async def begin(self, caller: Caller, credential: str) -> str:
        """Return the value of a cookie for a caller who has shown this credential, or its hash."""
        login = Login(
            id=new_id(),
            tenant=caller.tenant,
            principal=caller.principal,
            scopes=sorted(caller.scopes),
            key=caller.key,
            proof=await self.proof(credential),
            until=self._clock() + LASTS * 1_000,
        )
        body = msgspec.json.encode(login)
        return f"{_text(body)}.{_text(await self._signature(body))}"

    async def read(self, value: str) -> Login | None:
        """Return the login of a cookie, or None if the cookie is forged, expired or logged out."""
        body, _, signature = value.partition(".")
        try:
            data, given = _bytes(body), _bytes(signature)
        except (ValueError, binascii.Error):
            return None
        if not hmac.compare_digest(given, await self._signature(data)):
            return None
        login = msgspec.json.decode(data, type=Login)
        if login.until <= self._clock() or await self._is_ended(login.id):
            return None
        return login

    async def end(self, login: Login) -> None:
        """Log out: every replica rejects copies of the cookie within five seconds."""
        created = ev.SessionCreated(user=login.principal, workspace=login.tenant)
        event = NewEvent.of("session.created", created, id=f"logout:{login.id}")
        key = Key(TENANT, login.id, "main")
        await (await self._store()).append(key, [event], create=True)
        self._ended[login.id] = (time.monotonic() + LASTS, True)

    async def proof(self, credential: str) -> str:
        """Return a keyed hash of a credential."""
        return _text(hmac.digest(await self._key(), b"proof\n" + credential.encode(), "sha256"))

    async def _signature(self, body: bytes) -> bytes:
        return hmac.digest(await self._key(), b"cookie\n" + body, "sha256")

    async def _is_ended(self, id: str) -> bool:
        known = self._ended.get(id)
        if known is None or time.monotonic() > known[0]:
            row = await (await self._store()).row(Key(TENANT, id, "main"))
            known = self._ended[id] = (time.monotonic() + FRESH, row is not None)
        return known[1]

    async def _key(self) -> bytes:
        """Return the signing key. The first server on a store creates it."""
        if self._secret is None:
            store, key = await self._store(), Key(TENANT, SIGNING, "main")
            made = [
                NewEvent.of("session.created", ev.SessionCreated(title="signing key of logins")),
                NewEvent.of("key.issued", SigningKey(secret=random_text(SECRET))),
            ]
            try:
                if await store.row(key) is None:
                    await store.append(key, made, expected=0, create=True)
            except HeadMoved:
                pass  # another server was first
            async for event in store.read(key, after=1, limit=1):
                secret = msgspec.json.decode(event.data, type=SigningKey).secret
                self._secret = hashlib.sha256(secret.encode()).digest()
        assert self._secret is not None
        return self._secret


def cookie_name(headers: Mapping[str, str]) -> str:
    """Return the name of the cookie. It includes the port that the browser uses, because browsers
    send cookies to all ports of a host."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port if port.isascii() and port.isdigit() else 'default'}"


def cookie_of(headers: Mapping[str, str]) -> str | None:
    """Return the value of the login cookie of a request."""
    wanted = cookie_name(headers)
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted and value:
            return value
    return None


def check_origin(shown: RequestCredentials) -> None:
    """Reject a request with a cookie unless a page of this server sent it. Browsers send cookies
    along with requests of pages at other ports of the same host too."""
    headers = shown.headers
    site = headers.get("sec-fetch-site")
    if site is None:  # a browser that does not send it, or an address without TLS
        origin = headers.get("origin", "").partition("://")[2]
        own = bool(origin) and origin == headers.get("host")
    else:
        own = site == "same-origin"
    if not own:
        raise Forbidden(
            problem="a request that is authenticated by a cookie must come from a page of this "
            "server (Sec-Fetch-Site: same-origin, or its Origin): send a bearer token instead"
        )
    if shown.method not in SAFE and HEADER not in headers:
        raise Forbidden(
            problem=f"a change that is authenticated by a cookie needs the header {HEADER}"
        )


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
