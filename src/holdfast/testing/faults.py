"""A store that fails, stalls or dies where told, from the outside.

Wrap any store in `FaultyStore` and plan `Fault`s: each names a method, which call of it,
and whether it strikes before the inner call (the request is lost) or after it (the
reply is lost, the work is done). Product code holds no hooks for this.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..catalog import Page, Parent, Pending, PendingQuery, Query, Row
from ..errors import StoreUnavailable
from ..events import Appended, Event, Key, NewEvent, Scope
from ..store import BlobRef, Damage, Draft, Lease, Snapshot, Store, StoreInfo
from ..values.records import Receipt
from ..values.stream_items import CaughtUp

T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class Fault:
    """Something that goes wrong at the `call`-th call of `method`, counted from 1.

    With `after`, it strikes when the inner call is done; in a stream (`read`, `follow`,
    `verify`), when its first item has been handed out.
    """

    method: str
    call: int = 1
    after: bool = False

    async def strike(self) -> None:
        raise NotImplementedError


@dataclass(eq=False, kw_only=True)
class Fail(Fault):
    """Raise `StoreUnavailable`, or another error."""

    error: Exception = field(default_factory=lambda: StoreUnavailable(problem="a planned fault"))

    async def strike(self) -> None:
        raise self.error


@dataclass(eq=False, kw_only=True)
class Stall(Fault):
    """Wait there: `reached` says that the call has come, `go` lets it on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def strike(self) -> None:
        self.reached.set()
        await self.go.wait()


@dataclass(eq=False, kw_only=True)
class Die(Fault):
    """Kill this process as `kill -9` does: no handler, no flush, no goodbye."""

    async def strike(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class FaultyStore:
    """A store that does what the inner one does, except where `plan` says otherwise.

    `plan` may change at any time; `calls` counts the calls of each method so far. `info`
    and `aclose` never fail.
    """

    def __init__(self, store: Store, plan: Iterable[Fault] = ()) -> None:
        self.inner = store
        self.plan = list(plan)
        self.calls: Counter[str] = Counter()

    def _count(self, method: str) -> int:
        self.calls[method] += 1
        return self.calls[method]

    async def _strike(self, method: str, call: int, *, after: bool) -> None:
        for fault in self.plan:
            if (fault.method, fault.call, fault.after) == (method, call, after):
                await fault.strike()

    async def _call(self, method: str, inner: Coroutine[Any, Any, T]) -> T:
        call = self._count(method)
        try:
            await self._strike(method, call, after=False)
        except BaseException:
            inner.close()
            raise
        answer = await inner
        await self._strike(method, call, after=True)
        return answer

    async def _stream(self, method: str, inner: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        call, struck = self._count(method), False
        async with aclosing(inner):
            await self._strike(method, call, after=False)
            async for item in inner:
                yield item
                if not struck:
                    struck = True
                    await self._strike(method, call, after=True)
            if not struck:
                await self._strike(method, call, after=True)

    async def append(
        self,
        key: Key,
        events: Sequence[NewEvent],
        *,
        expected: int | None = None,
        fence: Lease | None = None,
        log: str | None = None,
        create: bool = False,
    ) -> Appended:
        inner = self.inner.append(
            key, events, expected=expected, fence=fence, log=log, create=create
        )
        return await self._call("append", inner)

    def read(
        self,
        key: Key,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
        log: str | None = None,
        inline: bool = True,
    ) -> AsyncGenerator[Event, None]:
        inner = self.inner.read(
            key, after=after, before=before, limit=limit, reverse=reverse, log=log, inline=inline
        )
        return self._stream("read", inner)

    def follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        return self._stream("follow", self.inner.follow(key, after=after, log=log))

    async def fork(self, key: Key, thread: str, *, at: int, first: NewEvent) -> None:
        await self._call("fork", self.inner.fork(key, thread, at=at, first=first))

    async def restore(
        self, key: Key, events: AsyncIterable[Event], *, parent: Parent | None = None
    ) -> None:
        await self._call("restore", self.inner.restore(key, events, parent=parent))

    async def erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> Receipt:
        return await self._call("erase", self.inner.erase(key, seqs, reason=reason, fence=fence))

    async def delete(self, target: Scope | Key, *, fence: Lease | None = None) -> Receipt:
        return await self._call("delete", self.inner.delete(target, fence=fence))

    async def row(self, key: Key) -> Row | None:
        return await self._call("row", self.inner.row(key))

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page[Row]:
        return await self._call("find", self.inner.find(query, cursor=cursor, limit=limit))

    async def pending(
        self, query: PendingQuery, *, cursor: str | None = None, limit: int = 50
    ) -> Page[Pending]:
        return await self._call("pending", self.inner.pending(query, cursor=cursor, limit=limit))

    async def claim(
        self, tenant: str, name: str, owner: Scope, *, instead_of: Scope | None = None
    ) -> Scope:
        inner = self.inner.claim(tenant, name, owner, instead_of=instead_of)
        return await self._call("claim", inner)

    async def unclaim(self, tenant: str, name: str, owner: Scope) -> None:
        await self._call("unclaim", self.inner.unclaim(tenant, name, owner))

    async def claims(self, owner: Scope) -> list[str]:
        return await self._call("claims", self.inner.claims(owner))

    async def link(self, key: Key, seq: int, *, log: str | None = None) -> str | None:
        return await self._call("link", self.inner.link(key, seq, log=log))

    async def runnable(self, tenant: str, *, agents: Sequence[str], limit: int = 100) -> list[Key]:
        inner = self.inner.runnable(tenant, agents=agents, limit=limit)
        return await self._call("runnable", inner)

    async def acquire(
        self, key: Key, owner: str, *, ttl: float = 15.0, steal: str | None = None
    ) -> Lease:
        return await self._call("acquire", self.inner.acquire(key, owner, ttl=ttl, steal=steal))

    async def renew(self, lease: Lease) -> Lease:
        return await self._call("renew", self.inner.renew(lease))

    async def release(self, lease: Lease, *, head: int | None = None) -> None:
        await self._call("release", self.inner.release(lease, head=head))

    async def put_draft(
        self, key: Key, message: str, offset: int, text: str, *, fence: Lease
    ) -> None:
        inner = self.inner.put_draft(key, message, offset, text, fence=fence)
        await self._call("put_draft", inner)

    async def drafts(self, key: Key) -> list[Draft]:
        return await self._call("drafts", self.inner.drafts(key))

    async def put_blob(self, scope: Scope, data: bytes, *, sha256: str | None = None) -> BlobRef:
        return await self._call("put_blob", self.inner.put_blob(scope, data, sha256=sha256))

    async def get_blob(self, scope: Scope, ref: BlobRef, *, checked: bool = True) -> bytes:
        return await self._call("get_blob", self.inner.get_blob(scope, ref, checked=checked))

    async def blobs(self, scope: Scope) -> list[BlobRef]:
        return await self._call("blobs", self.inner.blobs(scope))

    async def save_snapshot(self, key: Key, snapshot: Snapshot, *, fence: Lease) -> None:
        inner = self.inner.save_snapshot(key, snapshot, fence=fence)
        await self._call("save_snapshot", inner)

    async def load_snapshot(self, key: Key, version: str) -> Snapshot | None:
        return await self._call("load_snapshot", self.inner.load_snapshot(key, version))

    def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        return self._stream("verify", self.inner.verify(target, repair=repair))

    async def purge(self) -> Receipt:
        return await self._call("purge", self.inner.purge())

    def info(self) -> StoreInfo:
        return self.inner.info()

    async def aclose(self) -> None:
        await self.inner.aclose()
