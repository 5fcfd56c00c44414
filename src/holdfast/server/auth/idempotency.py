"""Doing what was asked once, however often it is asked: `Idempotency-Key`.

Each key has a log of its own in the default store, under a tenant that belongs to the server.
Its first event holds the hash of the request, its last the answer. Whoever holds the log's lease
does the work; all others wait for the answer. A process that dies with the work half done leaves
a lease that lapses; the next who asks does it again, under the same ids, so that what was done
already is found and not repeated.

Messages need none of this: the key becomes the id of their event.
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
from ...stores.port import Lease, Store, wall_clock
from ...values.stream_items import CaughtUp
from .callers import Caller

TENANT = "~once:"  # + the tenant whose requests they are
TTL = 15.0  # seconds that a request is done by one process before another may take it up
LONGEST = 255  # characters of a key
KEPT = 24 * 3_600  # seconds that an answer is remembered
PATIENCE = 60.0  # seconds that a duplicate waits for the answer
BATCH = 100
SESSION = "session"  # that an answer is about, in the metadata of its row


class Asked(Struct, frozen=True, kw_only=True):
    """A request: what it is for, and a hash of all that it says."""

    key: str
    hash: str
    session: str | None = None


class Answered(Struct, frozen=True, kw_only=True):
    """How it was answered; `session` is one that the request did not name, but made or found."""

    hash: str
    status: int
    headers: list[tuple[str, str]] = []
    body: bytes = b""
    session: str | None = None


Work: TypeAlias = Callable[[str, bool], Awaitable[Answered]]


class Once:
    """Requests of a server that were made with a key, and their answers. `waiting` is entered by
    whoever waits for an answer, and may end the wait; `check` then says why."""

    def __init__(
        self,
        store: Store,
        *,
        waiting: Callable[[asyncio.Timeout], AbstractContextManager[object]] = nullcontext,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._waiting, self._check = store, waiting, check
        self._owner = f"{socket.gethostname()}:{new_id()[-12:]}"
        self.tenants: set[str] = set()  # whose requests were answered here

    async def do(self, caller: Caller, asked: Asked, work: Work) -> Answered:
        """The answer to a request: that of its first time, or that of `work`, which is given a
        name for what it makes, the same every time, and whether it may have begun before."""
        check_key(asked.key)
        record = name(caller, asked.key)
        where = Key(TENANT + caller.tenant, record, "main")
        while True:
            again = await self._begin(where, caller, asked)
            if again and (known := await self._known(where, asked)) is not None:
                return known
            try:
                lease = await self._turn(where, asked)
            except SessionNotFound:  # whoever had begun it could not do it: the key is free
                continue
            if isinstance(lease, Lease):
                return await self._work(where, lease, asked, work, record, again)
            return lease

    async def same(self, caller: Caller, asked: Asked) -> None:
        """Have a key stand for this request, of which the answer is not kept (`KeyReused` where it
        stands for another)."""
        where = Key(TENANT + caller.tenant, name(caller, asked.key), "main")
        if await self._begin(where, caller, asked):
            await self._known(where, asked)

    async def _begin(self, where: Key, caller: Caller, asked: Asked) -> bool:
        """Write down that it was asked for; whether it was before."""
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

    async def _known(self, where: Key, asked: Asked) -> Answered | None:
        """The answer, if there is one; `KeyReused` where the key stands for something else."""
        try:
            async for event in self._store.read(where):
                if event.kind == "request.received":
                    if event.json().get("hash") != asked.hash:
                        raise KeyReused(key=asked.key)
                elif event.kind == "request.answered":
                    return msgspec.json.decode(event.data, type=Answered)
        except SessionNotFound:
            return None
        return None

    async def _turn(self, where: Key, asked: Asked) -> Lease | Answered:
        """The right to do it, or the answer of whoever had that."""
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
                what="requests with this key at a time", limit=1, retry_after=TTL
            ) from None

    async def _told(self, where: Key, asked: Asked, left: int) -> Answered | None:
        """The answer of whoever is at it, or None once their lease may have lapsed."""
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
        self, where: Key, lease: Lease, asked: Asked, work: Work, record: str, again: bool
    ) -> Answered:
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
        """Nothing was done: the key is free again."""
        try:
            await self._store.release(lease)
            await self._store.delete(Scope(where.tenant, where.session))
        except (LeaseLost, SessionNotFound, LogReplaced):
            return

    async def _hold(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(TTL / 3)
            with contextlib.suppress(Exception), cancellable():  # whatever it is, it may pass
                lease = await self._store.renew(lease)

    # Tidying

    async def sweep(self, tenant: str, *, older: int = KEPT) -> int:
        """Forget answers that are older than so many seconds; how many."""
        until = wall_clock() - older * 1000
        query = Query(tenant=TENANT + tenant, created_until=until)
        return await self._drop(query)

    async def forget(self, tenant: str, session: str, but: str | None = None) -> int:
        """Forget all that was answered about a session."""
        told = await self._drop(Query(tenant=TENANT + tenant, workspace=session), but)
        made = Query(tenant=TENANT + tenant, metadata={SESSION: session})
        return told + await self._drop(made, but)

    async def forget_person(self, tenant: str, user: str, but: str | None = None) -> int:
        """Forget all that a person has asked for."""
        return await self._drop(Query(tenant=TENANT + tenant, user=user), but)

    async def _drop(self, query: Query, but: str | None = None) -> int:
        count, cursor = 0, None
        while True:
            page = await self._store.find(query, cursor=cursor, limit=BATCH)
            for row in page.items:
                if row.session != but:
                    await self._store.delete(row.scope)
                    count += 1
            if (cursor := page.cursor) is None:
                return count


def _about(answer: Answered) -> list[NewEvent]:
    """What lets an answer be found by the session that it is about."""
    if answer.session is None:
        return []
    return [NewEvent.of("metadata.changed", ev.MetadataChanged(set={SESSION: answer.session}))]


def check_key(key: str) -> None:
    """Refuse a key that is no line of visible ASCII."""
    if not 1 <= len(key) <= LONGEST or not key.isascii() or not key.isprintable():
        raise InvalidValue(
            field="Idempotency-Key",
            problem="is no key",
            remedy=f"use 1 to {LONGEST} visible ASCII characters",
            limit=LONGEST,
        )


def name(caller: Caller, key: str) -> str:
    """What a key is called in the store: one's own, whatever keys others use."""
    text = msgspec.json.encode((caller.tenant, caller.principal, key))
    return hashlib.sha256(text).hexdigest()[:40]


def request_hash(method: str, path: str, query: bytes, body: bytes) -> str:
    """A hash of all that a request says."""
    parts = msgspec.json.encode((method, path, query.decode("latin-1")))
    return hashlib.sha256(parts + b"\n" + body).hexdigest()
