"""One import into a session at a time, whichever process it is in.

The turn is the lease of a thread that stands for the session until its own are there, and that
wants no driver. It goes when the import ends, and what the session owns goes with it if nothing
else is there. Whoever comes meanwhile waits; a turn whose process died ends by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress

from ..cancellation import cancellable, ended
from ..errors import HoldfastError, LeaseHeld, LeaseLost, SessionNotFound
from ..log.events import Event, Key, Scope
from ..stores.copy import base_of, restore_base
from ..stores.port import Lease, Store

OWNER = "holdfast import"  # who holds the leases
TTL = 15.0  # seconds that a turn outlives its process
PATIENCE = 60.0  # seconds that an import waits for its turn
LOOK = 0.1  # seconds between two looks
PLACE = hashlib.sha256(b"import").digest()


class Turn:
    """The right to write a session's threads."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store, self._lease = store, lease

    async def check(self) -> None:
        """Go on for another while; `LeaseLost` when somebody else is at it by now."""
        self._lease = await self._store.renew(self._lease)

    async def keep(self) -> None:
        """Go on until this is cancelled, or the turn is lost."""
        while True:
            await asyncio.sleep(TTL / 3)
            try:
                with cancellable():
                    await self.check()
            except (LeaseLost, SessionNotFound):
                return
            except HoldfastError:  # the store may be back in time
                continue

    async def take_back(self, written: Mapping[Key, int]) -> bool:
        """Remove threads that were written up to these numbers, and the place; all, or none where
        somebody went on with one, drives one, or has the turn. Whether they are gone."""
        await self.check()
        leases: list[Lease] = []
        try:
            for key, head in written.items():
                with suppress(SessionNotFound):  # it never came to be
                    leases.append(await self._store.acquire(key, OWNER, ttl=TTL))
                    row = await self._store.row(key)
                    if row is None or row.head != head:
                        return False
            while leases:
                await self._store.delete(leases[-1].key, fence=leases[-1])
                leases.pop()
        finally:
            for lease in leases:
                with suppress(HoldfastError):
                    await self._store.release(lease)
        await self.end()
        return True

    async def end(self) -> None:
        with suppress(LeaseLost, SessionNotFound):
            await self._store.delete(self._lease.key, fence=self._lease)


def place_of(scope: Scope) -> Key:
    """The thread whose lease is the turn."""
    return base_of(scope, PLACE)


@asynccontextmanager
async def turn(store: Store, scope: Scope) -> AsyncGenerator[Turn, None]:
    """Wait until nobody else imports into the session; `LeaseHeld` when that takes too long."""
    mine = Turn(store, await _taken(store, place_of(scope)))
    keeping = asyncio.create_task(mine.keep())
    try:
        yield mine
    finally:
        await ended(keeping)
        await mine.end()


async def _taken(store: Store, place: Key) -> Lease:
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while True:
        try:
            return await store.acquire(place, OWNER, ttl=TTL)
        except SessionNotFound:
            await restore_base(store, place, _none(), 0)
        except LeaseHeld as held:
            if loop.time() > until:
                raise
            await asyncio.sleep(min(held.left / 1000, LOOK))


async def _none() -> AsyncGenerator[Event, None]:
    for event in list[Event]():
        yield event
