"""Idempotency keys: a request with an `Idempotency-Key` takes effect once, even if it is sent
again.

Each key has a log in the default store, under a reserved tenant. Its first events contain the hash
of the request, its last event the response. The process that holds the log's lease handles the
request; all others wait for the response. If that process crashes, its lease expires; the next
attempt handles the request again with the same ids, so that it finds the results of the earlier
attempt.

Messages do not need such a log: the key becomes the id of their event.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ...cancellation import cancellable, ended
from ...environment import wall_clock
from ...errors import (
    HeadMoved,
    InvalidValue,
    KeyReused,
    LeaseHeld,
    LeaseLost,
    LogReplaced,
    RateLimited,
    SessionNotFound,
)
from ...log import events as ev
from ...log.catalog import Query
from ...log.events import Key, NewEvent, Scope, new_id
from ...stores.pages import every_row
from ...stores.port import Lease, Store
from ...values.stream_items import CaughtUp
from .callers import Caller

TENANT = "~once:"  # + the tenant of the requests
TTL = 15.0  # seconds until the lease of a crashed process expires
LONGEST = 255  # characters of a key
KEPT = 24 * 3_600  # seconds that a response is stored
PATIENCE = 60.0  # seconds that a duplicate waits for the response
BATCH = 100
SESSION = "session"  # the metadata field with the session of a response


class KeyedRequest(Struct, frozen=True, kw_only=True):
    """A request with an idempotency key: the key, a hash of the request, and the id of the session
    in its path, if any."""

    key: str
    hash: str
    session: str | None = None


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A response that is stored for repeated requests. `session` is the session that the request
    created or found."""

    hash: str
    status: int
    headers: list[tuple[str, str]] = []
    body: bytes = b""
    session: str | None = None


Work: TypeAlias = Callable[[str, bool], Awaitable[StoredResponse]]


class IdempotencyStore:
    """Stores the responses to requests with an idempotency key, so that a repeated request gets the
    same response. While a duplicate waits for the response, it is inside the context manager
    `waiting`, which can cancel the wait; `check` then raises the error that says why."""

    def __init__(
        self,
        store: Store,
        *,
        waiting: Callable[[asyncio.Timeout], AbstractContextManager[object]] = nullcontext,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._waiting, self._check = store, waiting, check
        self._owner = f"{socket.gethostname()}:{new_id()[-12:]}"
        self.tenants: set[str] = set()  # the tenants with requests in this process

    async def do(self, caller: Caller, asked: KeyedRequest, work: Work) -> StoredResponse:
        """Return the response to a request: the stored response if there is one, otherwise the
        response that `work` returns. `work` is called with an id for the object it creates, which
        is the same in every attempt, and with True if there was an earlier attempt."""
        check_key(asked.key)
        record = name(caller, asked.key)
        where = Key(TENANT + caller.tenant, record, "main")
        while True:
            again = await self._begin(where, caller, asked)
            if again and (known := await self._known(where, asked)) is not None:
                return known
            try:
                lease = await self._turn(where, asked)
            except SessionNotFound:  # an earlier attempt failed and has released the key
                continue
            if isinstance(lease, Lease):
                return await self._work(where, lease, asked, work, record, again)
            return lease

    async def same(self, caller: Caller, asked: KeyedRequest) -> None:
        """Check a key for a request whose response is not stored: the first call records the
        request. Raises `KeyReused` if the key was used for a different request."""
        where = Key(TENANT + caller.tenant, name(caller, asked.key), "main")
        if await self._begin(where, caller, asked):
            await self._known(where, asked)

    async def _begin(self, where: Key, caller: Caller, asked: KeyedRequest) -> bool:
        """Record the request under its key. Returns whether a request was recorded there before."""
        self.tenants.add(caller.tenant)
        created = ev.SessionCreated(user=caller.principal, workspace=asked.session)
        events = [
            NewEvent.of("session.created", created),
            NewEvent.of("request.received", {"hash": asked.hash}),
        ]
        try:
            await self._store.append(where, events, expected=0, create=True)
        except HeadMoved:
            return True
        return False

    async def _known(self, where: Key, asked: KeyedRequest) -> StoredResponse | None:
        """Return the stored response, or None. Raises `KeyReused` if the key was used for a
        different request."""
        try:
            async for event in self._store.read(where):
                if event.kind == "request.received":
                    if event.json().get("hash") != asked.hash:
                        raise KeyReused(key=asked.key)
                elif event.kind == "request.answered":
                    return msgspec.json.decode(event.data, type=StoredResponse)
        except SessionNotFound:
            return None
        return None

    async def _turn(self, where: Key, asked: KeyedRequest) -> Lease | StoredResponse:
        """Acquire the lease for handling the request, or return the response of another attempt."""
        try:
            async with asyncio.timeout(PATIENCE) as patience:
                while True:
                    try:
                        lease = await self._store.acquire(where, self._owner, ttl=TTL)
                    except LeaseHeld as held:
                        with self._waiting(patience):
                            known = await self._told(where, asked, held.left)
                    else:
                        known = await self._known(where, asked)
                        if known is None:
                            return lease
                        await self._store.release(lease)
                    if known is not None:
                        return known
        except TimeoutError:
            self._check()
            raise RateLimited(
                what="concurrent requests with this idempotency key", limit=1, retry_after=TTL
            ) from None

    async def _told(self, where: Key, asked: KeyedRequest, left: int) -> StoredResponse | None:
        """Wait for the response of another attempt. Returns None when that attempt's lease may have
        expired."""
        row = await self._store.row(where)
        if row is None or (known := await self._known(where, asked)) is not None:
            return None if row is None else known
        try:
            async with asyncio.timeout(min(left / 1000 + 0.05, TTL)):
                async for item in self._store.follow(where, after=row.head):
                    if not isinstance(item, CaughtUp):
                        break
        except (TimeoutError, SessionNotFound, LogReplaced):
            pass
        return await self._known(where, asked)

    async def _work(
        self, where: Key, lease: Lease, asked: KeyedRequest, work: Work, record: str, again: bool
    ) -> StoredResponse:
        holding = asyncio.create_task(self._hold(lease), name="once")
        try:
            answer = await work(record, again)
            if answer.status < 500 and answer.status not in (401, 403, 408, 429):
                event = NewEvent.of("request.answered", answer, id=f"answer:{record}")
                await self._store.append(where, [*_about(answer), event], fence=lease)
                await self._store.release(lease)
            else:
                await self._forget(where, lease)
        finally:
            await ended(holding)
        return answer

    async def _forget(self, where: Key, lease: Lease) -> None:
        """Delete the log of a request that had no effect, so that its key can be used again."""
        try:
            await self._store.release(lease)
            await self._store.delete(Scope(where.tenant, where.session))
        except (LeaseLost, SessionNotFound, LogReplaced):
            return

    async def _hold(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(TTL / 3)
            with contextlib.suppress(Exception), cancellable():  # any error may be temporary
                lease = await self._store.renew(lease)

    # Cleaning up

    async def sweep(self, tenant: str, *, older: int = KEPT) -> int:
        """Delete responses that are older than this many seconds. Returns how many were deleted."""
        until = wall_clock() - older * 1000
        query = Query(tenant=TENANT + tenant, created_until=until)
        return await self._drop(query)

    async def forget(self, tenant: str, session: str, but: str | None = None) -> int:
        """Delete all stored responses about a session, except the one with the id `but`."""
        told = await self._drop(Query(tenant=TENANT + tenant, workspace=session), but)
        made = Query(tenant=TENANT + tenant, metadata={SESSION: session})
        return told + await self._drop(made, but)

    async def forget_person(self, tenant: str, user: str, but: str | None = None) -> int:
        """Delete all stored responses to requests of a user, except the one with the id `but`."""
        return await self._drop(Query(tenant=TENANT + tenant, user=user), but)

    async def _drop(self, query: Query, but: str | None = None) -> int:
        count = 0
        async for row in every_row(self._store, query, batch=BATCH):
            if row.session != but:
                await self._store.delete(row.scope)
                count += 1
        return count


def _about(answer: StoredResponse) -> list[NewEvent]:
    """Return the metadata event by which a stored response can be found by its session."""
    if answer.session is None:
        return []
    return [NewEvent.of("metadata.changed", ev.MetadataChanged(set={SESSION: answer.session}))]


def check_key(key: str) -> None:
    """Reject a key that is too long or contains characters other than visible ASCII."""
    if not 1 <= len(key) <= LONGEST or not key.isascii() or not key.isprintable():
        raise InvalidValue(
            field="Idempotency-Key",
            problem="is empty, too long or not visible ASCII",
            remedy=f"use 1 to {LONGEST} visible ASCII characters",
            limit=LONGEST,
        )


def name(caller: Caller, key: str) -> str:
    """Return the id under which a key is stored. Keys of different callers have different ids."""
    text = msgspec.json.encode((caller.tenant, caller.principal, key))
    return hashlib.sha256(text).hexdigest()[:40]


def request_hash(method: str, path: str, query: bytes, body: bytes) -> str:
    """Return a hash of a request's method, path, query and body."""
    parts = msgspec.json.encode((method, path, query.decode("latin-1")))
    return hashlib.sha256(parts + b"\n" + body).hexdigest()
