"""Upkeep: recompute hashes, links, numbers, rows and claims log by log, and remove orphans."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator

from msgspec.structs import replace

from ...errors import LogDamaged
from ...log import catalog
from ...log.catalog import Project
from ...log.codec import fingerprint
from ...log.events import Key, Scope
from ..links import LinkWalk
from ..port import Damage
from . import entry as entries
from .batches import PAGE_EVENTS, found_events, named
from .entry import DEAD, LIVE, Document, MongoLogEntry, Segment
from .event_records import FoundEvent
from .heads import MongoHeads
from .history import blank_events, drop_snapshots, kept_of, project_anew, projected
from .payloads import drop_chunks, events_of, used_writes
from .records import claimed
from .schema import Collection, MongoDatabase

TRIES = 5  # tries to read a log that others change meanwhile
STALE_MS = 3_600_000  # ms after which a write that nothing refers to is an orphan


async def logs_of(db: MongoDatabase, target: Scope | Key | None) -> list[tuple[Scope, str]]:
    """The logs to verify."""
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
    """The problems of one log, its row and its claims. A log that changes during the read may look
    damaged: then it is read again."""
    for _ in range(TRIES):
        entry = await heads.by_log(scope, log)
        if entry is None or entry.state != LIVE:
            return []  # deleted meanwhile
        found = await _check_log(db, heads, project, entry)
        after = await heads.by_log(scope, log) if found else entry
        if after is not None and after.version == entry.version:
            break
    return found


async def _check_log(
    db: MongoDatabase, heads: MongoHeads, project: Project, entry: MongoLogEntry
) -> list[Damage]:
    scope, log = entry.scope, entry.log
    found: list[Damage] = []
    for part in [*entry.chain, Segment(entry.log, entry.shared, entry.row.head)]:
        # Events that a deleted log left to its forks are checked with them, all others with their
        # own log.
        own = part.log == log
        if own or await _is_dead(heads, scope, part.log):
            left = await kept_of(db, entry, entry.shared) if entry.shared else b""
            deleted = None if own else part.log
            walk = LinkWalk(entry.row, part.after, left if own else None, deleted=deleted)
            found += [damage async for damage in _check_events(db, entry, part, walk)]
            found += walk.end() if own else ()
    if not any(damage.problem in ("unreadable", "missing") for damage in found):
        found += await _check_row(db, project, entry)
    return found + [damage async for damage in _check_claims(db, entry)]


async def _is_dead(heads: MongoHeads, scope: Scope, log: str) -> bool:
    entry = await heads.by_log(scope, log)
    return entry is None or entry.state == DEAD


async def _check_events(
    db: MongoDatabase, entry: MongoLogEntry, part: Segment, walk: LinkWalk
) -> AsyncGenerator[Damage, None]:
    seq = part.after
    while seq < part.upto:
        found = await found_events(db, entry, seq, part.upto, PAGE_EVENTS, False)
        for event in found:
            if event.seq != seq + 1:
                yield _missing(entry.key, seq + 1, event.seq - 1)
                walk.miss()
            seq = event.seq
            for damage in await _check_event(db, entry.key, event, walk):
                yield damage
        if not found:
            after = await _next_after(db, entry, part, seq)
            yield _missing(entry.key, seq + 1, after)
            walk.miss()
            seq = after


async def _next_after(db: MongoDatabase, entry: MongoLogEntry, part: Segment, seq: int) -> int:
    """The last number before the next existing event."""
    if part.log == entry.log and seq >= entry.rolled:
        return part.upto
    doc = await db.batches.find_one(
        named(entry.scope, log=part.log, last={"$gt": seq}),
        {"first": 1},
        sort=[("last", 1)],
        hint="last",
    )
    upto = part.upto if part.log != entry.log else entry.rolled
    return upto if doc is None else max(seq + 1, min(doc["first"] - 1, upto))


def _missing(key: Key, seq: int, upto: int) -> Damage:
    return Damage(problem="missing", detail=f"up to {upto}", key=key, seq=seq)


async def _check_event(
    db: MongoDatabase, key: Key, found: FoundEvent, walk: LinkWalk
) -> list[Damage]:
    hash, link = found.record["hash"], found.record.get("link")
    events, damage = await events_of(db, key, [found], inline=True)
    if damage is None and fingerprint(events[0]) == hash:
        return walk.look(events[0], hash, link)
    walk.skip(link)
    assert damage is None or isinstance(damage, LogDamaged)
    detail = "differs from its hash" if damage is None else damage.problem
    return [Damage(problem="unreadable", detail=detail, key=key, seq=found.seq)]


async def _check_row(db: MongoDatabase, project: Project, entry: MongoLogEntry) -> list[Damage]:
    row = await projected(db, project, entry)
    if not catalog.agrees(entry.row, row):
        return [Damage(problem="row", detail="differs from its log", key=entry.key)]
    if entries.listing(row) != entry.listed:
        return [
            Damage(problem="row", detail="the index of the row differs from the row", key=entry.key)
        ]
    return []


async def _check_claims(db: MongoDatabase, entry: MongoLogEntry) -> AsyncGenerator[Damage, None]:
    key = entry.key
    for name in catalog.bound(entry.row):
        if await claimed(db, key.tenant, catalog.SURFACE_CLAIM + name) != key.scope:
            yield Damage(problem="claim", detail=f"surface {name} is not claimed", key=key)


async def repair(
    db: MongoDatabase,
    heads: MongoHeads,
    project: Project,
    scope: Scope,
    log: str,
) -> list[Damage]:
    """Repair what can be repaired: damaged events are erased, rows rebuilt. The damage is looked up
    again first."""
    found = await check_log(db, heads, project, scope, log)
    lost = [damage.seq for damage in found if damage.problem == "unreadable" and damage.seq]
    mended = bool(lost) or any(damage.problem == "row" for damage in found)
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
    if mended:
        await drop_snapshots(db, scope, log)
        await project_anew(db, heads, project, scope, log)
    return [replace(damage, repaired=damage.problem in ("unreadable", "row")) for damage in found]


# Orphans


async def drop_orphans(db: MongoDatabase) -> Counter[str]:
    """Remove what crashed calls left behind: events, payloads, drafts and snapshots of logs that no
    longer exist, and chunks that nothing refers to."""
    removed: Counter[str] = Counter()
    for name in ("batches", "chunks", "drafts", "snapshots"):
        removed[name] += await _drop_strays(db, getattr(db, name))
    removed["chunks"] += await _drop_unused(db)
    return removed


async def _drop_strays(db: MongoDatabase, collection: Collection) -> int:
    """Remove the documents of logs that do not exist."""
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
