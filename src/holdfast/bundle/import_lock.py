"""A lock that ensures that only one import writes to a session at a time, even across processes.

The lock is the lease of a temporary thread in the session. The thread is deleted when the import
ends; if the session has no other thread, its blobs and claims are deleted too. Other imports wait,
and the lock of a crashed process expires.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress

from ..cancellation import cancellable, ended
from ..errors import HoldfastError, LeaseHeld, LeaseLost, SessionNotFound
from ..log.events import Key, Scope
from ..stores.copy import base_of, restore_base
from ..stores.port import Lease, Store
from .archive import each

OWNER = "holdfast import"  # the owner of the leases
TTL = 15.0  # seconds until the lock of a crashed process expires
LONGEST_WAIT = 60.0  # seconds that an import waits for the lock
RETRY_AFTER = 0.1  # seconds between two attempts
LOCK = hashlib.sha256(b"import").digest()


class ImportLock:
    """The lock of one import. Only its holder writes the session's threads."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store, self._lease = store, lease

    async def check(self) -> None:
        """Renew the lock. Raises `LeaseLost` if another import has it."""
        self._lease = await self._store.renew(self._lease)

    async def keep(self) -> None:
        """Keep renewing the lock until this is cancelled or the lock is lost."""
        while True:
            await asyncio.sleep(TTL / 3)
            try:
                with cancellable():
                    await self.check()
            except (LeaseLost, SessionNotFound):
                return
            except HoldfastError:  # the store may recover in time
                continue

    async def take_back(self, written: Mapping[Key, int]) -> bool:
        """Undo the import: delete the lock, and the threads that were `written`, given with their
        last event numbers. Deletes nothing if one of the threads was continued or has a driver.
        Returns whether they were deleted.
        """
        await self.check()
        leases: list[Lease] = []
        try:
            for key, head in written.items():
                with suppress(SessionNotFound):  # it was never created
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


def lock_key(scope: Scope) -> Key:
    """Return the key of the thread whose lease is the lock."""
    return base_of(scope, LOCK)


@asynccontextmanager
async def locked_import(store: Store, scope: Scope) -> AsyncGenerator[ImportLock, None]:
    """Hold the lock of a session during an import. Waits for other imports. Raises `LeaseHeld` if
    they take too long.
    """
    mine = ImportLock(store, await _acquired(store, lock_key(scope)))
    keeping = asyncio.create_task(mine.keep())
    try:
        yield mine
    finally:
        await ended(keeping)
        await mine.end()


async def _acquired(store: Store, key: Key) -> Lease:
    loop = asyncio.get_running_loop()
    until = loop.time() + LONGEST_WAIT
    while True:
        try:
            return await store.acquire(key, OWNER, ttl=TTL)
        except SessionNotFound:
            await restore_base(store, key, each(()), 0)
        except LeaseHeld as held:
            if loop.time() > until:
                raise
            await asyncio.sleep(min(held.left / 1000, RETRY_AFTER))
