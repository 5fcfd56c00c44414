"""Verification and repair: recompute the hashes, links, numbers, rows and claims of each log, and
remove orphaned data."""

from __future__ import annotations

from collections import Counter

from ...log.catalog import Project, Row
from ...log.events import Key, Scope
from .. import verify
from ..paging import PAGE_EVENTS
from ..port import Damage
from ..verify import LogRange, StoredEvent
from . import entry as entries
from .batches import found_events, named
from .entry import DEAD, LIVE, Document, MongoLogEntry
from .heads import MongoHeads
from .history import blank_events, drop_snapshots, kept_of, project_anew, projected
from .log import stored_events
from .payloads import drop_chunks, used_writes
from .records import claimed
from .schema import Collection, MongoDatabase
from .texts import forget_events

TRIES = 5  # tries to read a log that others change meanwhile
STALE_MS = 3_600_000  # ms after which a write that nothing refers to is an orphan


async def logs_of(db: MongoDatabase, target: Scope | Key | None) -> list[tuple[Scope, str]]:
    """Return the logs to verify."""
    where: Document = {"state": LIVE}
    if target is not None:
        where.update(tenant=target.tenant, session=target.session)
    if isinstance(target, Key):
        where["thread"] = target.thread
    found = db.logs.find(where, {"tenant": 1, "session": 1}, sort=[("_id", 1)])
    return [(Scope(doc["tenant"], doc["session"]), doc["_id"]) async for doc in found]


async def check_log(
    db: MongoDatabase, heads: MongoHeads, project: Project, scope: Scope, log: str
) -> list[Damage]:
    """Return the problems of one log, its row and its claims. A log that changes while it is read
    may look damaged, so it is read again."""
    for _ in range(TRIES):
        entry = await heads.by_log(scope, log)
        if entry is None or entry.state != LIVE:
            return []  # deleted meanwhile
        found = await verify.check_log(MongoLogCheck(db, heads, project, entry))
        after = await heads.by_log(scope, log) if found else entry
        if after is not None and after.version == entry.version:
            break
    return found


class MongoLogCheck:
    """Verifies one MongoDB log whose head was already read; see `LogCheck`."""

    lossy = False

    def __init__(
        self, db: MongoDatabase, heads: MongoHeads, project: Project, entry: MongoLogEntry
    ) -> None:
        self._db = db
        self._heads = heads
        self._project = project
        self._entry = entry
        self.row = entry.row

    async def parts(self) -> list[LogRange]:
        entry = self._entry
        found = []
        for log, after, upto in entry.chain:
            base = await self._heads.by_log(entry.scope, log)
            if base is None or base.state == DEAD:
                found.append(LogRange(log, after, upto, deleted=log))
        return [*found, LogRange(entry.log, entry.shared, entry.row.head)]

    async def left(self) -> bytes | None:
        shared = self._entry.shared
        return await kept_of(self._db, self._entry, shared) if shared else b""

    async def events(self, part: LogRange, after: int) -> list[StoredEvent]:
        while after < part.upto:
            found = await found_events(self._db, self._entry, after, part.upto, PAGE_EVENTS, False)
            if found:
                return await stored_events(self._db, self._entry.key, found)
            after = await self._next_after(part, after)
        return []

    async def _next_after(self, part: LogRange, seq: int) -> int:
        """Return the last number before the next existing event, so that a gap in the numbers can
        be skipped."""
        entry = self._entry
        if part.log == entry.log and seq >= entry.rolled:
            return part.upto
        doc = await self._db.batches.find_one(
            named(entry.scope, log=part.log, last={"$gt": seq}),
            {"first": 1},
            sort=[("last", 1)],
            hint="last",
        )
        upto = part.upto if part.log != entry.log else entry.rolled
        return upto if doc is None else max(seq + 1, min(doc["first"] - 1, upto))

    async def rebuilt(self) -> Row | None:
        row = await projected(self._db, self._project, self._entry)
        return row if row.head == self.row.head else None  # numbers are missing

    async def is_indexed(self, row: Row) -> bool:
        return entries.listing(row) == self._entry.listed

    async def claimed(self, tenant: str, name: str) -> Scope | None:
        return await claimed(self._db, tenant, name)


async def repair(
    db: MongoDatabase,
    heads: MongoHeads,
    project: Project,
    scope: Scope,
    log: str,
) -> list[Damage]:
    """Erase damaged events, and rebuild rows. The log is checked again first."""
    found = await check_log(db, heads, project, scope, log)
    lost = verify.lost(found)
    entry = await heads.by_log(scope, log)
    if entry is not None and lost:
        own = [seq for seq in lost if seq > entry.shared]
        while entry is not None and own:
            settled = await heads.settled(entry, own[-1])
            if settled is not None:
                break
            entry = await heads.by_log(scope, log)
        for part in entries.segments(settled if own and settled else entry) if entry else ():
            if some := [seq for seq in lost if part.after < seq <= part.upto]:
                await blank_events(db, scope, part.log, some, "damaged", damaged=True)
                await forget_events(db, scope, part.log, some)
    if verify.has_wrong_row(found):
        await drop_snapshots(db, scope, log)
        await project_anew(db, heads, project, scope, log)
    return verify.repaired(found)


# Orphans


async def drop_orphans(db: MongoDatabase) -> Counter[str]:
    """Remove data that crashed calls left behind: events, payloads, drafts and snapshots of logs
    that do not exist, and chunks that nothing refers to."""
    removed: Counter[str] = Counter()
    for name in ("batches", "chunks", "drafts", "snapshots"):
        removed[name] += await _drop_strays(db, getattr(db, name))
    removed["chunks"] += await _drop_unused(db)
    return removed


async def _drop_strays(db: MongoDatabase, collection: Collection) -> int:
    """Remove documents that belong to logs that do not exist. Returns their number."""
    removed = 0
    by_log: list[Document] = [{"$match": {"log": {"$ne": None}}}, {"$group": _LOG}]
    young = await db.clock.now() - STALE_MS
    async for group in await collection.aggregate(by_log, allowDiskUse=True):
        name, scope = group["_id"]["log"], Scope(group["_id"]["tenant"], group["_id"]["session"])
        # A chunk may be older than the head that its call is about to insert.
        if (group["at"] or 0) > young or await db.logs.find_one(named(scope, _id=name), {"_id": 1}):
            continue
        removed += (await collection.delete_many(named(scope, log=name))).deleted_count
    return removed


_LOG = {
    "_id": {"tenant": "$tenant", "session": "$session", "log": "$log"},
    "at": {"$max": "$at"},
}


async def _drop_unused(db: MongoDatabase) -> int:
    """Remove the chunks of writes that no event and no blob refers to."""
    removed = 0
    by_write: list[Document] = [
        {"$match": {"at": {"$lt": await db.clock.now() - STALE_MS}}},
        {
            "$group": {
                "_id": {"tenant": "$tenant", "session": "$session", "log": "$log"},
                "writes": {"$addToSet": "$write"},
            }
        },
    ]
    async for group in await db.chunks.aggregate(by_write, allowDiskUse=True):
        scope = Scope(group["_id"]["tenant"], group["_id"]["session"])
        used = await used_writes(db, scope, group["_id"].get("log"))
        for write in set(group["writes"]) - used:
            await drop_chunks(db, scope, write)
            removed += 1
    return removed
