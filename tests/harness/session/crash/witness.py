"""What a session shows at one moment, and a store that keeps it before it kills the process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast import Harness, LeaseHeld, Store
from holdfast.events import Appended, Key, NewEvent
from holdfast.harness.session.session import Session, core_of
from holdfast.store import Acquire, Lease
from holdfast.testing.faults import FaultyStore
from holdfast.values.display import to_json

T = TypeVar("T")


async def view(session: Session) -> dict[str, Any]:
    """All that a person or a program can see of a session, and of those that work for it."""
    children = await session.subagents.list()
    below = [await session.subagents.open(child.thread) for child in children]
    for each in (session, *below):
        await core_of(each).catch_up()
    seen = {
        "displays": [msgspec.Raw(to_json(each.display.get())) for each in (session, *below)],
        "pending": await session.pending(),
        "suspended": [ask.id for ask in await session.suspensions.list()],
        "gated": [ask.id for ask in await session.approval.list()],
        "queue": await session.follow_ups.list(),
        "mode": session.mode.name,
        "models": [session.model.ref, session.model.chosen],
        "state": session.state.get(),
        "settings": session.thread.settings.all(),
        "run": [session.run.id, session.run.is_running],
        "usage": session.usage.get(),
        "used": [await session.usage.by_run(), await session.usage.by_model()],
        "all": await session.usage_all(),
        "children": children,
        "said": await session.transcript(),
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(seen, enc_hook=str))
    return plain


class Witness(FaultyStore):
    """A store through which one write goes at a time. The process dies before write `call`; or
    `after` it, with a view of what is there then at `path`. Nobody gets a lease before
    `driving` is set."""

    harness: Harness | None = None

    def __init__(self, store: Store, session: str, call: int, after: bool, path: Path) -> None:
        super().__init__(store)
        self._session, self._at, self._after, self._path = session, call, after, path
        self._turn = asyncio.Lock()
        self.driving = asyncio.Event()
        self.writes = 0

    async def append(
        self,
        key: Key,
        events: Sequence[NewEvent],
        *,
        expected: int | None = None,
        fence: Lease | None = None,
        log: str | None = None,
        create: bool = False,
        acquire: Acquire | None = None,
        release: Lease | None = None,
    ) -> Appended:
        if acquire is not None and not self.driving.is_set():
            raise LeaseHeld(
                tenant=key.tenant,
                session=key.session,
                thread=key.thread,
                owner="nobody",
                since=0,
                left=1,
            )

        async def write() -> Appended:
            return await self.inner.append(
                key,
                events,
                expected=expected,
                fence=fence,
                log=log,
                create=create,
                acquire=acquire,
                release=release,
            )

        return await self._write(write)

    async def fork(self, key: Key, thread: str, *, at: int, first: NewEvent) -> None:
        await self._write(lambda: self.inner.fork(key, thread, at=at, first=first))

    async def acquire(
        self,
        key: Key,
        owner: str,
        *,
        ttl: float = 15.0,
        steal: str | None = None,
        mark: str | None = None,
    ) -> Lease:
        await self.driving.wait()
        return await self.inner.acquire(key, owner, ttl=ttl, steal=steal, mark=mark)

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            self.writes += 1
            if (self.writes, False) == (self._at, self._after):
                os.kill(os.getpid(), signal.SIGKILL)
            done = await write()
            if (self.writes, True) == (self._at, self._after):
                await self._testify()
                os.kill(os.getpid(), signal.SIGKILL)
            return done

    async def _testify(self) -> None:
        session = self.harness.get(self._session) if self.harness is not None else None
        if session is not None:
            text = msgspec.json.encode(await view(session))
            await asyncio.to_thread(self._path.write_bytes, text)
