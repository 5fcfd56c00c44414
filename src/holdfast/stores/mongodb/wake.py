"""Notifies followers of changes to their logs, by one change stream per process and by polling.

On a replica set, the change stream reports which heads changed, and the followed logs are also
polled slowly in case a change is missed. On a standalone server there is only polling, at a higher
rate.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pymongo.errors import PyMongoError

from ...cancellation import cancellable, ended
from ...log.events import Key
from ..notify import Wakes
from .batches import named
from .entry import LIVE, Document
from .schema import MongoDatabase

QUICK = 0.05  # seconds between two polls without a change stream
SLOW = 1.0  # seconds between two polls with a change stream
PAUSE = 0.2  # seconds to wait after an error
MANY = 200  # logs polled at a time

_HEAD = ("updateDescription", "updatedFields", "head")
_ONLY_HEADS: list[Document] = [
    {"$project": {"documentKey": 1, "operationType": 1, ".".join(_HEAD): 1}}
]


class ChangeWatch:
    """Notifies the followers of one store of changes. It runs only while there are followers."""

    def __init__(self, db: MongoDatabase, wakes: Wakes) -> None:
        self._db = db
        self._wakes = wakes
        self._followed: Counter[Key] = Counter()
        self._keys: dict[str, Key] = {}
        self._places: dict[Key, tuple[str, int]] = {}
        self._added = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def following(self, key: Key) -> AsyncIterator[None]:
        """Context manager that watches a log for changes inside the block."""
        self._followed[key] += 1
        self._added.set()
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._poll())]
            if self._db.replicated:
                self._tasks.append(asyncio.create_task(self._listen()))
        try:
            yield
        finally:
            self._followed[key] -= 1
            if not self._followed[key]:
                del self._followed[key]
                self._forget(key)
            if not self._followed:
                await self.aclose()

    def _forget(self, key: Key) -> None:
        log, _ = self._places.pop(key, ("", 0))
        self._keys.pop(log, None)

    async def _poll(self) -> None:
        pause = SLOW if self._db.replicated else QUICK
        while True:
            # The first poll of a log may wake its follower although nothing changed.
            self._added.clear()
            try:
                with cancellable():
                    keys = list(self._followed)
                    for start in range(0, len(keys), MANY):
                        await self._look(keys[start : start + MANY])
            except PyMongoError:
                await asyncio.sleep(PAUSE)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._added.wait()

    async def _look(self, keys: list[Key]) -> None:
        """Poll some logs, and notify the followers of those that changed."""
        ways = [named(key.scope, thread=key.thread, state=LIVE) for key in keys]
        wanted = {"tenant": 1, "session": 1, "thread": 1, "head": 1}
        found: dict[Key, tuple[str, int]] = {}
        async for doc in self._db.logs.find({"$or": ways}, wanted):
            key = Key(doc["tenant"], doc["session"], doc["thread"])
            found[key] = (doc["_id"], doc["head"])
        for key in keys:
            place = found.get(key)
            if key not in self._followed or (place and place == self._places.get(key)):
                continue
            known, _ = self._places.get(key, ("", 0))
            self._forget(key)
            if place is not None:
                self._places[key] = place
                self._keys[place[0]] = key
            self._wakes.wake(key, place[1] if place is not None and place[0] == known else None)

    async def _listen(self) -> None:
        while True:
            try:
                with cancellable():
                    async with await self._db.logs.watch(_ONLY_HEADS) as changes:
                        self._wakes.wake_all()  # for changes before the change stream was open
                        async for change in changes:
                            self._heard(change)
            except PyMongoError:
                pass
            self._wakes.wake_all()
            await asyncio.sleep(PAUSE)

    def _heard(self, change: Document) -> None:
        log = change.get("documentKey", {}).get("_id")
        if log is None:
            self._wakes.wake_all()
        elif log in self._keys:
            self._wakes.wake(self._keys[log], _head(change))

    async def aclose(self) -> None:
        """Stop watching for changes."""
        tasks, self._tasks = self._tasks, []
        await ended(*tasks)
        self._places.clear()
        self._keys.clear()


def _head(change: Document) -> int | None:
    """Return the number of the log's last event if the change is an append, else None."""
    part: Any = change
    for name in _HEAD:
        part = part.get(name, {})
    return part if isinstance(part, int) else None
