"""Deletion: hide the data at once, then remove it in steps that can be interrupted at any point.

The head document of a deleted log is marked as dead, and stays until all data of the log is
removed; events that its forks share stay as long as the forks exist. The blobs and claims of a
session are removed with its last thread. The dead head records that this is pending (`owned`), and
no log of the session can be created before it is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...errors import SessionNotFound
from ...log.catalog import SKEW
from ...log.events import Key, Scope, new_id
from ...values.records import Remains
from .. import rules
from ..port import Lease
from . import entry as entries
from .batches import named
from .entry import DEAD, FORKING, LIVE, RESTORING, Document
from .event_records import ref_of
from .heads import MISSED, Missed, MongoHeads
from .payloads import blank_chunks, drop_chunks, used_writes
from .schema import MongoDatabase
from .texts import forget_log

STEP = 64  # batches read at a time


class Delete:
    """One delete operation, including its retries. The logs that it hides are marked with its
    id."""

    def __init__(
        self,
        db: MongoDatabase,
        heads: MongoHeads,
        target: Scope | Key,
        fence: Lease | None,
        expected: int | None = None,
    ) -> None:
        self._db = db
        self._heads = heads
        self._target = target
        self._fence = fence
        self._expected = expected
        self._mark = new_id()
        self._tried = False
        self.scope = target.scope if isinstance(target, Key) else target
        self.removed: Counter[str] = Counter()
        self.hidden: list[Document] = []

    async def run(self) -> None:
        """Hide the target, and remove its blobs and claims."""
        await self._hide()
        self.hidden = await self._db.logs.find(
            named(self.scope, state=DEAD, deleted=self._mark),
            {"head": 1, "shared": 1},
            hint="hidden",
        ).to_list()
        self.removed["logs"] = len(self.hidden)
        self.removed["events"] = sum(doc["head"] - doc["shared"] for doc in self.hidden)
        logs = [doc["_id"] for doc in self.hidden]
        for name in ("snapshots", "drafts"):
            gone = await getattr(self._db, name).delete_many(named(self.scope, log={"$in": logs}))
            self.removed[name] += gone.deleted_count
        self.removed += await finish(self._db, self.scope)
        if self._target == self.scope and not await has_threads(self._db, self.scope):
            self.removed += await drop_owned(self._db, self.scope, await self._db.clock.now())

    @property
    def _whole(self) -> bool:
        """Whether the target is a whole session."""
        return not isinstance(self._target, Key)

    @property
    def _first(self) -> Key:
        """The key of the log to which the caller's expected head and fence apply: the target
        thread, or `main` of the target session."""
        if isinstance(self._target, Key):
            return self._target
        return Key(self.scope.tenant, self.scope.session, "main")

    async def _hide(self) -> None:
        guarded = self._fence is not None or self._expected is not None
        if guarded:
            await self._heads.settle(self._first, self._hide_first)
        if self._whole:
            await self._hide_threads(but_main=guarded)
        elif not guarded:
            where = named(self.scope, thread=self._first.thread, state=LIVE)
            await self._db.logs.update_one(where, await self._buried(), hint="key")
            self._heads.forget(self._first)

    async def _buried(self) -> Document:
        return entries.buried(self._mark, await self._db.clock.now(), self._whole)

    async def _hide_threads(self, *, but_main: bool) -> None:
        """Hide all threads of the session. With `but_main`, skip `main`, which was hidden before: a
        `main` that exists now was created later."""
        # This update does not change the fields of the index that it uses. A fork that began before
        # its parent was hidden exists by now, and is found here; one that begins later fails.
        where = named(self.scope, state={"$in": [LIVE, FORKING]})
        if but_main:
            where["thread"] = {"$ne": "main"}
        update = await self._buried()
        while (await self._db.logs.update_many(where, update, hint="session")).matched_count:
            pass

    async def _hide_first(self, entry: entries.MongoLogEntry | None, fresh: bool) -> Missed | None:
        """Hide the target thread, or `main` of the target session, by compare-and-set, if its head
        and lease are as the caller expects."""
        if self._tried and await self._db.logs.find_one(
            named(self.scope, state=DEAD, deleted=self._mark), hint="hidden"
        ):
            return None  # done before, and the reply was lost
        rules.check_delete(self._first, entry.row if entry else None, self._expected)
        if self._fence is not None:
            entry = rules.existing(self._first, entry)
            rules.check_fence(entry.row, entry.lease, self._fence)
        if entry is None:
            return None
        self._tried = True
        dead = entry._replace(state=DEAD)
        if not await self._heads.swap(entry, dead, await self._buried()):
            return MISSED
        self._heads.forget(self._first)
        return None


async def has_threads(db: MongoDatabase, scope: Scope) -> bool:
    """Return whether a session exists, which means that it has a thread."""
    return await db.logs.find_one(named(scope, state=LIVE), {"_id": 1}, hint="key") is not None


async def check_session(db: MongoDatabase, scope: Scope) -> None:
    """Reject a call for a session that does not exist."""
    if not await has_threads(db, scope):
        raise SessionNotFound(tenant=scope.tenant, session=scope.session)


async def finish(db: MongoDatabase, scope: Scope) -> Counter[str]:
    """Remove the blobs and claims of a session, if a delete of its last thread was interrupted."""
    where = named(scope, state=DEAD, owned=True)
    dead = await db.logs.find(where, {"whole": 1, "hidden": 1}, hint="hidden").to_list()
    removed: Counter[str] = Counter()
    if not dead:
        return removed
    if any(doc["whole"] for doc in dead) or not await has_threads(db, scope):
        removed = await drop_owned(db, scope, max(doc["hidden"] for doc in dead))
    ids = [doc["_id"] for doc in dead]
    await db.logs.update_many(named(scope, _id={"$in": ids}), {"$unset": {"owned": ""}})
    return removed


async def drop_owned(db: MongoDatabase, scope: Scope, upto: int) -> Counter[str]:
    """Remove the blobs and claims that a session had at a given time. Newer blobs and claims belong
    to a session that was created again. Those with a time in the future are removed too, because
    their time means that the clock was set back."""
    ahead = await db.clock.asked() + SKEW
    where = {**named(scope), "$or": [{"at": {"$lte": upto}}, {"at": {"$gt": ahead}}]}
    blobs = await db.blobs.delete_many(where)
    await db.chunks.delete_many({**where, "log": None})
    claims = await db.claims.delete_many(where)
    return Counter(blobs=blobs.deleted_count, claims=claims.deleted_count)


# Sweeping


async def sweep(db: MongoDatabase, scope: Scope | None = None) -> None:
    """Remove hidden logs, in one session or in all, except the events that forks share."""
    await _discard_cut(db)
    where: Document = {"state": DEAD} if scope is None else named(scope, state=DEAD)
    again = True
    while again:
        again = False
        # Newest first: a fork is newer than its base.
        async for doc in db.logs.find(
            where, {"tenant": 1, "session": 1, "kept": 1}, sort=[("_id", -1)], hint="hidden"
        ):
            again |= await _sweep_log(db, doc)


async def _discard_cut(db: MongoDatabase) -> None:
    """Mark restores and forks as dead if they have made no progress for some time."""
    late = {"state": {"$in": [RESTORING, FORKING]}, "until": {"$lt": await db.clock.now()}}
    dead = {"$set": {"state": DEAD}, "$inc": {"version": 1}}
    await db.logs.update_many(late, dead, hint="hidden")


async def _sweep_log(db: MongoDatabase, doc: Document) -> bool:
    """Remove the events of a dead log that no fork shares. Returns whether the log was removed
    completely."""
    scope, log = Scope(doc["tenant"], doc["session"]), doc["_id"]
    await forget_log(db, scope, log)
    await finish(db, scope)
    forks = await db.logs.find(named(scope, base=log), {"shared": 1}, hint="base").to_list()
    if not forks:
        for collection in (db.chunks, db.batches, db.drafts, db.snapshots):
            await collection.delete_many(named(scope, log=log))
        await db.logs.delete_one(named(scope, _id=log, state=DEAD))
        return True
    kept = max(fork["shared"] for fork in forks)
    if doc.get("kept") != kept:
        await _trim(db, scope, log, kept)
        await _drop_unused(db, scope, log)
        await db.logs.update_one(named(scope, _id=log, state=DEAD), {"$set": {"kept": kept}})
    return False


async def _trim(db: MongoDatabase, scope: Scope, log: str, kept: int) -> None:
    """Remove the events of a log after number `kept`. Their payloads are removed first."""
    while True:
        docs = await db.batches.find(
            named(scope, log=log, last={"$gt": kept}), sort=[("last", 1)], limit=STEP, hint="last"
        ).to_list()
        for doc in docs:
            keep = max(0, kept + 1 - doc["first"])
            refs = [ref for event in doc["events"][keep:] if (ref := ref_of(event))]
            await blank_chunks(db, scope, refs)
            if keep:
                cut: Any = {"$each": [], "$slice": keep}
                await db.batches.update_one(
                    named(scope, _id=doc["_id"]),
                    {"$push": {"ids": cut, "events": cut}, "$set": {"last": kept}},
                )
            else:
                await db.batches.delete_one(named(scope, _id=doc["_id"]))
        if len(docs) < STEP:
            return


async def _drop_unused(db: MongoDatabase, scope: Scope, log: str) -> None:
    """Remove the payloads of a dead log that no batch refers to, which are the payloads of its
    tail."""
    used = await used_writes(db, scope, log)
    for write in await db.chunks.distinct("write", named(scope, log=log)):
        if write not in used:
            await drop_chunks(db, scope, write)


async def shared_still(db: MongoDatabase, scope: Scope, deleted: Sequence[str]) -> list[Remains]:
    """Return which events of the deleted logs are still shared by forks. The result names no other
    session."""
    forks: dict[str, list[Document]] = {}
    where = named(scope, base={"$in": list(deleted)}, state=LIVE)
    async for doc in db.logs.find(where, {"base": 1, "shared": 1, "thread": 1}, hint="base"):
        forks.setdefault(doc["base"], []).append(doc)
    return [
        Remains(
            where=f"log {log}",
            what=f"events up to {max(fork['shared'] for fork in found)}, shared by forks "
            f"({','.join(sorted(fork['thread'] for fork in found))})",
            remedy="delete the forks",
        )
        for log, found in forks.items()
    ]
