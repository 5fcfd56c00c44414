"""Reads, caches and changes head documents; changes use compare-and-set.

A process decides based on its copy of a head, and the server applies the change only if that copy
is current. Within a process, the writers of one log take turns, so that they never compete with
each other.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from pymongo.errors import DuplicateKeyError

from ...errors import HoldfastError, StoreUnavailable
from ...log.events import Key, Scope
from .. import rules
from ..keyed_locks import KeyedLocks
from ..rules import Extension
from . import entry as entries
from .batches import named, newest_documents, roll
from .entry import LIVE, TAIL_MOST, Document, MongoLogEntry
from .event_records import Batch
from .schema import MongoDatabase
from .writes import Writes

T = TypeVar("T")

RECENT = 1_024  # heads in the cache
RECENT_BYTES = 32 << 20
LONGEST = 0.004  # the longest wait in seconds after a lost race


class Missed:
    """The result of an attempt whose head was outdated. The head must be read again, and the change
    decided again."""


MISSED: Final = Missed()

Attempt = Callable[[MongoLogEntry | None, bool], Awaitable[T | Missed]]


def _live(key: Key) -> Document:
    return named(key.scope, thread=key.thread, state=LIVE)


class MongoHeads:
    """Reads, caches and changes the head documents of a store's logs."""

    def __init__(self, db: MongoDatabase, *, patience: float) -> None:
        self.db = db
        self._patience = patience
        self._writes = Writes(db.logs, limit=max(1.0, patience / 2))
        self._recent: OrderedDict[Key, MongoLogEntry] = OrderedDict()
        self._size = 0
        self._turns = KeyedLocks[Key]()
        self._rolls: dict[tuple[str, int], asyncio.Task[None]] = {}

    # Reading

    async def read(self, key: Key) -> MongoLogEntry | None:
        """Return the log that currently has this key, or None if it does not exist."""
        return self._read(key, await self.db.logs.find_one(_live(key), hint="key"))

    def _read(self, key: Key, doc: Document | None) -> MongoLogEntry | None:
        if doc is None:
            self.forget(key)
            return None
        entry = entries.decoded(doc)
        self._keep(entry)
        return entry

    async def newest(
        self, key: Key, count: int, log: str | None = None
    ) -> tuple[MongoLogEntry, list[Document]]:
        """Return the log with this key, as `existing` does, and the batches that contain those of
        its newest `count` events that are no longer in the tail, newest first. One command reads
        both."""
        steps = [{"$match": _live(key)}, *newest_documents(key.scope, count)]
        docs = await (await self.db.logs.aggregate(steps, hint="key")).to_list()
        doc = docs[0] if docs else None
        near = doc.pop("near") if doc else []
        return rules.existing(key, self._read(key, doc), log), near

    async def existing(self, key: Key, log: str | None = None) -> MongoLogEntry:
        """Return the log with this key. Raises an error if it does not exist, or is not the
        incarnation that the caller expects."""
        return rules.existing(key, await self.read(key), log)

    async def by_log(self, scope: Scope, log: str) -> MongoLogEntry | None:
        """Return the log with this incarnation id, in any state, or None."""
        doc = await self.db.logs.find_one(named(scope, _id=log), hint="_id_")
        return None if doc is None else entries.decoded(doc)

    async def lease_time(self, entry: MongoLogEntry) -> int:
        """Return the time at which to decide whether the lease of a log is live. If the lease was
        renewed later than this process's estimate of the time, the server's clock is read, because
        either the clock was set back or the estimate is behind."""
        now = await self.db.clock.now()
        return now if entry.lease.renewed <= now else await self.db.clock.asked()

    # Cache

    def _keep(self, entry: MongoLogEntry) -> None:
        there = self._recent.get(entry.key)
        if there is not None and there.log == entry.log and there.version > entry.version:
            return  # the cached copy is newer than the one that was read
        self.forget(entry.key)
        self._recent[entry.key] = entry
        self._size += entry.size
        while len(self._recent) > RECENT or self._size > RECENT_BYTES:
            _, oldest = self._recent.popitem(last=False)
            self._size -= oldest.size

    def forget(self, key: Key) -> None:
        """Remove a log from the cache, because the cached copy may be outdated."""
        entry = self._recent.pop(key, None)
        if entry is not None:
            self._size -= entry.size

    # Changing

    async def settle(self, key: Key, attempt: Attempt[T]) -> T:
        """Run `attempt` with the cached head and return its result. If that head was outdated, or
        led to a rejection, run the attempt again with the current head.

        The wait between attempts does not grow: the writers of all processes have the same chance,
        and one of them always succeeds.
        """
        async with self._turns.of(key):
            entry = self._recent.get(key)
            fresh = entry is None
            if entry is None:
                entry = await self.read(key)
            else:
                self._recent.move_to_end(key)
            end = time.monotonic() + self._patience
            while True:
                try:
                    done = await attempt(entry, fresh)
                    if not isinstance(done, Missed):
                        return done
                    if time.monotonic() > end:
                        raise StoreUnavailable(
                            problem="too many writers change this log at once: retry"
                        )
                    if fresh:
                        await asyncio.sleep(random.uniform(0, LONGEST))  # noqa: S311
                except HoldfastError:
                    if fresh:
                        raise
                except BaseException:
                    # It is unknown whether the change was made.
                    self.forget(key)
                    raise
                entry = await self.read(key)
                fresh = True

    async def begin(self, entry: MongoLogEntry) -> bool:
        """Insert the head of a new log. Returns False if this log, or another log with the same
        key, exists."""
        try:
            await self.db.logs.insert_one(entries.encoded(entry))
        except DuplicateKeyError:
            return False
        if entry.state == LIVE:
            self._keep(entry._replace(listed=entries.listing(entry.row)))
        return True

    async def swap(self, old: MongoLogEntry, new: MongoLogEntry, update: Document) -> bool:
        """Apply a change if `old` is still current."""
        where = named(old.scope, _id=old.log, version=old.version, state=old.state)
        grown = new.tail[-1].size if new.tail else 0
        if not await self._writes.change(where, update, grown):
            self.forget(old.key)
            return False
        if new.state == LIVE:
            self._keep(new)
        return True

    # Moving tails

    async def extend(
        self, old: MongoLogEntry, plan: Extension, batch: Batch
    ) -> MongoLogEntry | None:
        """Append a batch, and drop the moved part of the tail. Returns None if the head has
        changed."""
        moved = old.frozen > 0 and await self._moved(old)
        new, update = entries.extended(old, plan, batch, moved)
        if not await self.swap(old, new, update):
            return None
        if new.frozen:
            self._rolling(new)
        return new

    async def _moved(self, entry: MongoLogEntry) -> bool:
        """Return whether the frozen part is in `batches`. Waits for the move only if the tail is
        too long."""
        task = self._rolling(entry)
        if not task.done() and len(entry.tail) < TAIL_MOST and entry.size < 2 * entries.TAIL_BYTES:
            return False
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._rolls.pop((entry.log, entry.tail[0].first), None)
        return True

    def _rolling(self, entry: MongoLogEntry) -> asyncio.Task[None]:
        """Return the task that moves the frozen part of a tail into `batches`; start it if
        necessary."""
        name = (entry.log, entry.tail[0].first)
        task = self._rolls.get(name)
        if task is None:
            task = self._rolls[name] = asyncio.create_task(roll(self.db, entry))
            task.add_done_callback(lambda done: self._rolled(name, done))
        return task

    def _rolled(self, name: tuple[str, int], task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._rolls.pop(name, None)
        while len(self._rolls) > RECENT:
            idle = next((n for n, task in self._rolls.items() if task.done()), None)
            if idle is None:
                break
            del self._rolls[idle]

    async def settled(self, entry: MongoLogEntry, upto: int) -> MongoLogEntry | None:
        """Move all events up to number `upto` from the log's tail into `batches`, and return the
        log. Returns None if the head has changed."""
        while entry.rolled < upto:
            if not entry.frozen:
                new, update = entries.frozen(entry)
                if not await self.swap(entry, new, update):
                    return None
                entry = new
            await roll(self.db, entry)
            new, update = entries.dropped(entry)
            if not await self.swap(entry, new, update):
                return None
            entry = new
        return entry

    async def aclose(self) -> None:
        """Wait until the moves in progress have finished."""
        await self._writes.aclose()
        await asyncio.gather(*self._rolls.values(), return_exceptions=True)
        self._recent.clear()
        self._rolls.clear()
