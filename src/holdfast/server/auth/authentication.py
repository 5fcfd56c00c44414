"""Authentication of requests, by a handler, by API keys or by the cookie of a login, with a limit
on failed attempts."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Iterator

from ...cancellation import forget
from ...environment import wall_clock
from ...errors import RateLimited, Unauthorized
from ...local_token import is_loopback
from ...stores.port import Store
from ..recent import RecentMap
from .callers import (
    FORWARDED,
    RESERVED,
    AuthHandler,
    Caller,
    LocalTokenAuth,
    NoAuth,
    RequestCredentials,
    SharedSecret,
)
from .keys import NAME, PREFIX, SECRET, ApiKeys, KeyRecord, hashed
from .limits import BUCKETS, ConcurrencyLimiter, RateLimiter, ServerLimits
from .logins import Login, Logins, check_origin, cookie_of

LOGGER = logging.getLogger("holdfast.server")
FRESH = 5.0  # seconds that a key is cached
KNOWN = 10_000  # keys that are cached at most
FROM_ELSEWHERE = "this server accepts no requests from other machines or through a proxy"
LOCAL_ONLY = (
    "this server has no keys, so it accepts only programs and web pages on this machine: "
    "configure keys to accept other machines, and --origin to accept web pages"
)
NOT_LOCAL = (
    "this server needs its local token: run `holdfast token` as the user who started it, and send "
    "`Authorization: Bearer TOKEN`"
)


class Authenticator:
    """Authenticates the callers of a server, with a custom handler or by the API keys in `store`.
    `gate` limits concurrent lookups of unknown keys. `accepted` is called with the tenant of each
    authenticated caller."""

    def __init__(
        self,
        handler: AuthHandler | None,
        limits: ServerLimits,
        store: Callable[[], Awaitable[Store]],
        gate: ConcurrencyLimiter,
        accepted: Callable[[str], None],
    ) -> None:
        self._handler, self._store, self._gate, self._accepted = handler, store, gate, accepted
        self._known: RecentMap[bytes | None, None] = RecentMap(BUCKETS)  # hashes of accepted tokens
        self._logins = Logins(store)
        most = limits.refusals
        self._refusals = RateLimiter(most, most * 10, "failed logins per second")
        self._guesses = RateLimiter(most * 10, most * 20, "unknown keys per second")

    async def caller(self, shown: RequestCredentials) -> Caller:
        """Return the caller of a request. Raises `Unauthorized` or `RateLimited`."""
        address = shown.address or ""
        with self._limited(shown, address):
            caller = await self.find(shown)
        if caller is None:
            # Nobody can guess a cookie, or credentials for these handlers, so failed attempts are
            # not counted.
            by_cookie = shown.bearer() is None and cookie_of(shown.headers) is not None
            if not by_cookie and not isinstance(self._handler, (NoAuth, LocalTokenAuth)):
                self._refusals.take(address)
            raise self._unauthorized(shown)
        return caller

    async def find(self, shown: RequestCredentials) -> Caller | None:
        """Return the caller, or None if the credentials are invalid."""
        caller = await (await self._checked()).authenticate(shown)
        if caller is None and shown.bearer() is None:
            caller = await self._logged_in(shown)
        if caller is None:
            return None
        if caller.tenant.startswith(RESERVED):
            LOGGER.warning("a caller with a reserved tenant was rejected")
            return None
        if (token := _hash(shown)) is not None:
            self._known[token] = None
        self._accepted(caller.tenant)
        return caller

    async def _checked(self) -> AuthHandler:
        if self._handler is None:
            self._handler = KeyAuth(ApiKeys(await self._store()))
        return self._handler

    # Logins of browsers

    async def log_in(self, shown: RequestCredentials, caller: Caller) -> str | None:
        """Return the value of a cookie for a caller who has just sent a token; None without one."""
        if (token := shown.bearer()) is None:
            return None
        parts = split(token)
        sent = {hashed(token), hashed(parts[1] if parts else token)}
        known = [hash for hash, _ in await self._accepted_for(caller.key) or () if hash in sent]
        return await self._logins.begin(caller, known[0] if known else hashed(token))

    async def log_out(self, shown: RequestCredentials) -> None:
        """End the login of a request, if it has one."""
        if (login := await self._login(shown)) is not None:
            await self._logins.end(login)

    async def _login(self, shown: RequestCredentials) -> Login | None:
        value = cookie_of(shown.headers)
        return None if value is None else await self._logins.read(value)

    async def _logged_in(self, shown: RequestCredentials) -> Caller | None:
        """Return the caller of a request with a cookie, or None. The credential of the login must
        still be valid. Raises `Forbidden` if the request may come from a page of another origin."""
        if cookie_of(shown.headers) is None:
            return None
        check_origin(shown)
        login = await self._login(shown)
        if login is None:
            return None
        accepted = await self._accepted_for(login.key)
        if accepted is None:  # a custom handler, which knows no list of its credentials
            return login.caller()
        for hash, caller in accepted:
            if hmac.compare_digest(await self._logins.proof(hash), login.proof):
                return caller
        return None

    async def _accepted_for(self, key: str | None) -> list[tuple[str, Caller]] | None:
        """Return the hashes of the credentials that the handler accepts now, each with its caller;
        None if the handler cannot tell. `key` is the id of an API key."""
        handler = await self._checked()
        if isinstance(handler, KeyAuth):
            return [] if key is None else await handler.accepted(key)
        if isinstance(handler, (LocalTokenAuth, SharedSecret)):
            return handler.accepted()
        return None

    async def still(self, shown: RequestCredentials, caller: Caller) -> bool:
        """Return whether these credentials still identify the same caller, with at least the same
        scopes. Also returns True if the check itself fails."""
        try:
            known = await self.find(shown)
        except Exception as error:  # a custom handler may raise anything
            LOGGER.warning(
                "the credentials of an open stream cannot be checked again: %s",
                type(error).__name__,
            )
            return True
        return known is not None and (
            (known.tenant, known.principal) == (caller.tenant, caller.principal)
            and known.scopes >= caller.scopes
        )

    @contextlib.contextmanager
    def _limited(self, shown: RequestCredentials, address: str) -> Iterator[None]:
        """Context manager for an authentication attempt. Raises `RateLimited` if the address had
        too many failed attempts. Tokens that were accepted before are exempt. API keys are exempt
        too, since they are too long to guess, but their lookups are limited."""
        with contextlib.ExitStack() as inside:
            try:
                if _hash(shown) not in self._known:
                    self._refusals.check(address)
            except RateLimited:
                keys = self._handler is None or isinstance(self._handler, KeyAuth)
                if not keys or split(shown.bearer() or "") is None:
                    raise
                self._guesses.take(address)
                inside.enter_context(self._gate.through(address))
            yield

    def _unauthorized(self, shown: RequestCredentials) -> Unauthorized:
        """Return the error for a caller that could not be authenticated. Only clients on this
        machine are told that the server has no keys."""
        here = is_loopback(shown.address) and not any(name in shown.headers for name in FORWARDED)
        if isinstance(self._handler, NoAuth):
            return Unauthorized(problem=LOCAL_ONLY if here else FROM_ELSEWHERE)
        if isinstance(self._handler, LocalTokenAuth):
            return Unauthorized(problem=NOT_LOCAL)
        return Unauthorized()


def _hash(shown: RequestCredentials) -> bytes | None:
    token = shown.bearer()
    return None if token is None else hashlib.sha256(token.encode("utf-8", "replace")).digest()


class KeyAuth:
    """Authenticates callers by their API keys. A key is cached for five seconds, so every replica
    rejects a revoked key within this time.

    See [the server](../server.md).
    """

    def __init__(self, keys: ApiKeys, *, clock: Callable[[], int] = wall_clock) -> None:
        self._keys, self._clock = keys, clock
        self._known: RecentMap[str, tuple[float, KeyRecord]] = RecentMap(KNOWN)
        self._looking: dict[str, asyncio.Task[KeyRecord | None]] = {}

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        parts = split(shown.bearer() or "")
        if parts is None:
            return None
        id, secret = parts
        record = await self._look(id)
        if record is None or not record.fits(secret, self._clock()):
            return None
        return record.info.caller()

    async def accepted(self, id: str) -> list[tuple[str, Caller]]:
        """Return the hashes of the secrets of a key that are valid now, each with the caller."""
        record, now = await self._look(id), self._clock()
        if record is None or not record.info.valid(now):
            return []
        return [
            (hash, record.info.caller())
            for hash, until in record.hashes
            if until is None or now < until
        ]

    async def _look(self, id: str) -> KeyRecord | None:
        """Look up a key, once for all concurrent requests. Unknown keys are not cached, so that
        guesses use no memory."""
        known = self._known.get(id)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        looking = self._looking.get(id)
        if looking is None:
            looking = self._looking[id] = asyncio.create_task(self._keys.record(id))
            looking.add_done_callback(lambda _: self._looking.pop(id, None))
            looking.add_done_callback(forget)  # all waiting requests may be cancelled
        record = await asyncio.shield(looking)
        self._known.pop(id, None)
        if record is not None:
            self._known[id] = (time.monotonic() + FRESH, record)
        return record


def split(key: str) -> tuple[str, str] | None:
    """Return the id and the secret of a key, or None if the string is not a key."""
    body = key.removeprefix(PREFIX)
    whole = key.startswith(PREFIX) and len(body) == NAME + SECRET
    if not whole or not body.isascii() or not body.isalnum():
        return None
    return body[:NAME], body[NAME:]
