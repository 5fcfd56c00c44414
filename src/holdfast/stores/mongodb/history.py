"""Operations on whole logs: fork, restore, erase, and rebuilding a row."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from msgspec.structs import replace
from pymongo.errors import DuplicateKeyError

from ...errors import SessionNotFound
from ...log import catalog
from ...log.catalog import Parent, Project, Row
from ...log.codec import erased
from ...log.events import Event, Key, NewEvent, Scope
from .. import erasure, hash_chain, rules
from ..port import Lease
from ..rules import Extension, LeaseState
from . import entry as entries
from .batches import (
    batch_document,
    batch_in,
    found_events,
    insert_once,
    known_ids,
    known_in_batches,
    named,
)
from .entry import FORKING, LIVE, RESTORING, Document, MongoLogEntry
from .event_records import FoundEvent, batch_of, blank, cut, newest_of, numbered, ref_of
from .heads import MISSED, Missed, MongoHeads
from .log import all_events
from .payloads import Spill, blank_chunks, put_chunks
from .remove import finish
from .schema import MongoDatabase
from .texts import forget_events, forget_mark

BATCH_BYTES = 512 << 10  # size of the documents that a restore writes
BATCH_EVENTS = 256


# Forking


class Fork:
    """One fork operation, including its retries.

    The new log is inserted hidden, and made visible after a check that the parent still exists. So
    a concurrent delete of the session either finds the new log, or makes the fork fail.
    """

    def __init__(
        self,
        db: MongoDatabase,
        heads: MongoHeads,
        project: Project,
        key: Key,
        thread: str,
        at: int,
        first: NewEvent,
    ) -> None:
        self._db = db
        self._heads = heads
        self._project = project
        self._key = key
        self._target = Key(key.tenant, key.session, thread)
        self._at = at
        self._first = first
        self._spill = Spill(db)
        self._new: MongoLogEntry | None = None

    async def run(self) -> None:
        """Create a thread that shares the events up to number `at`."""
        parent = await self._heads.settle(self._key, self._attempt)
        if parent is not None:
            await self._show()

    async def _attempt(
        self, parent: MongoLogEntry | None, fresh: bool
    ) -> MongoLogEntry | Missed | None:
        parent = rules.existing(self._key, parent)
        if await self._done():
            return None
        known = await known_ids(self._db, parent, [self._first.id])
        rules.check_fork(parent.row, self._at, self._first, known)
        settled = await self._heads.settled(parent, self._at)
        if settled is None:
            return MISSED
        await self._begin(settled)
        # Changing only the parent's version proves that the parent still exists.
        after = settled._replace(version=settled.version + 1)
        touched = await self._heads.swap(settled, after, {"$inc": {"version": 1}})
        return after if touched else MISSED

    async def _done(self) -> bool:
        """Return whether the thread already exists because this call or an identical one created
        it."""
        there = await self._heads.read(self._target)
        if there is None:
            return False
        known = await known_ids(self._db, there, [self._first.id])
        rules.check_same_fork(self._target, there.shared, known, self._at, self._first)
        return True

    async def _begin(self, parent: MongoLogEntry) -> None:
        if self._new is not None:
            if self._new.chain == entries.chain_at(parent, self._at):
                return
            await discard(self._db, self._new)  # the parent was deleted and created again
        await finish(self._db, self._key.scope)
        now = await self._db.clock.now()
        left = await kept_of(self._db, parent, self._at)
        row, plan = rules.forked(
            self._target, self._at, self._first, left, project=self._project, now=now
        )
        new = entries.forked(parent, row, self._at, FORKING)
        batch = await self._spill.batch(self._target, new.log, plan)
        new = new._replace(
            row=plan.row,
            tail=(batch,),
            lease=LeaseState(until=now + rules.RESTORE_MS),
        )
        await self._heads.begin(new)
        self._new = new

    async def _show(self) -> None:
        assert self._new is not None
        if await show(self._db, self._heads, self._new):
            return
        if not await self._done():
            raise SessionNotFound(tenant=self._key.tenant, session=self._key.session)


async def show(db: MongoDatabase, heads: MongoHeads, entry: MongoLogEntry) -> bool:
    """Make a hidden log visible. Return False if another log has its key, or if the log was
    removed."""
    where = named(entry.scope, _id=entry.log, state=entry.state)
    _, update = entries.listed(entry._replace(listed={}), entry, anew=True)
    update["$set"].update(state=LIVE, until=0, newest=entry.newest)
    try:
        done = await db.logs.update_one(where, update, hint="_id_")
    except DuplicateKeyError:
        await discard(db, entry)
        return False
    if done.matched_count == 0:
        there = await heads.by_log(entry.scope, entry.log)
        return there is not None and there.state == LIVE
    heads.forget(entry.key)
    return True


async def discard(db: MongoDatabase, entry: MongoLogEntry) -> None:
    """Mark a hidden log as abandoned; the next sweep removes it."""
    dead = {"$set": {"state": entries.DEAD}, "$inc": {"version": 1}}
    await db.logs.update_one(named(entry.scope, _id=entry.log, state=entry.state), dead)


# Restoring


async def begin_restore(
    db: MongoDatabase, heads: MongoHeads, key: Key, parent: Parent | None
) -> MongoLogEntry:
    """Create a hidden log, into which events are then restored."""
    await _check_free(heads, key)
    now = await db.clock.now()
    if parent is None:
        new = entries.newborn(rules.new_row(key, now), state=RESTORING)
        await heads.begin(new._replace(lease=LeaseState(until=now + rules.RESTORE_MS)))
        return new

    above = Key(key.tenant, key.session, parent.thread)

    async def attempt(base: MongoLogEntry | None, fresh: bool) -> MongoLogEntry | Missed:
        base = rules.existing(above, base)
        rules.check_at(base.row, parent.at)
        settled = await heads.settled(base, parent.at)
        if settled is None:
            return MISSED
        # A new log for each attempt: the parent may have been replaced meanwhile.
        left = hash_chain.link_in(await kept_of(db, settled, parent.at))
        row = rules.new_row(key, now, at=parent.at, base=left)
        new = entries.forked(settled, row, parent.at, RESTORING)
        await heads.begin(new._replace(lease=LeaseState(until=now + rules.RESTORE_MS)))
        after = settled._replace(version=settled.version + 1)
        if await heads.swap(settled, after, {"$inc": {"version": 1}}):
            return new
        await discard(db, new)
        return MISSED

    return await heads.settle(above, attempt)


async def _check_free(heads: MongoHeads, key: Key) -> None:
    if await heads.read(key) is not None:
        raise rules.exists(key)


class Restoring:
    """The write of one group of restored events, including its retries. The events keep their
    numbers, ids and times."""

    def __init__(
        self, db: MongoDatabase, project: Project, entry: MongoLogEntry, events: Sequence[Event]
    ) -> None:
        self._db = db
        self._project = project
        self._entry = entry
        self._events = events
        self._seals = hash_chain.seals(events)  # another attempt writes the same events
        self._checked = False

    async def run(self) -> MongoLogEntry:
        """Write the events, and return the log after them."""
        if not self._checked:
            ids = [event.id for event in self._events]
            known = await known_in_batches(self._db, self._entry, ids)
            rules.check_restored(self._entry.row, self._events, known)
            self._checked = True
        entry, events = self._entry, self._events
        plan = rules.restored(entry.row, entry.shared, events, self._seals, self._project)
        groups = grouped(plan)
        # Identified by the numbers, so that another attempt writes the same.
        write = f"{entry.log}-{events[0].seq}"
        chunks, refs = cut([event for some in groups for event in large(some.fresh)], write)
        await put_chunks(self._db, entry.scope, entry.log, write, chunks)
        docs = [batch_document(entry.scope, entry.log, batch_of(some, refs)) for some in groups]
        await insert_once(self._db.batches, docs)
        await self._go_on()
        newest = max(entry.newest, newest_of(event.id for event in events))
        return entry._replace(row=plan.row, newest=newest)

    async def _go_on(self) -> None:
        """Record that the restore still makes progress, so that no sweep discards it."""
        where = named(self._entry.scope, _id=self._entry.log, state=RESTORING)
        until = await self._db.clock.now() + rules.RESTORE_MS
        if (await self._db.logs.update_one(where, {"$set": {"until": until}})).matched_count == 0:
            raise rules.restore_discarded()


def large(events: Sequence[Event]) -> list[Event]:
    """Return the events whose payloads are stored separately. The payloads of all other events are
    part of the restored documents."""
    return [event for event in events if len(event.data) > rules.APART]


def grouped(plan: Extension) -> list[Extension]:
    """Split events into groups of one document each."""
    groups = [Extension((), [], [], plan.row)]
    size = 0
    for event, hash, link in zip(plan.fresh, plan.hashes, plan.links, strict=True):
        if groups[-1].fresh and (len(groups[-1].fresh) >= BATCH_EVENTS or size >= BATCH_BYTES):
            groups.append(Extension((), [], [], plan.row))
            size = 0
        groups[-1].fresh.append(event)
        groups[-1].hashes.append(hash)
        groups[-1].links.append(link)
        size += len(event.data) if len(event.data) <= rules.APART else 0
    return groups


async def end_restore(db: MongoDatabase, heads: MongoHeads, entry: MongoLogEntry) -> None:
    """Assign the key to the restored log, which makes it visible."""
    rules.check_restored_end(entry.row, entry.shared)
    await finish(db, entry.scope)
    if not await show(db, heads, entry):
        await _check_free(heads, entry.key)
        raise rules.restore_discarded()
    await forget_mark(db)


# Erasing, and rebuilding rows


async def erase(
    db: MongoDatabase,
    heads: MongoHeads,
    project: Project,
    key: Key,
    seqs: Sequence[int],
    reason: str,
    fence: Lease | None,
) -> dict[str, int]:
    """Replace the data of events, rebuild the rows, and drop the snapshots. Repeat the call to
    complete an interrupted erase."""

    async def attempt(
        entry: MongoLogEntry | None, fresh: bool
    ) -> tuple[MongoLogEntry, list[int]] | Missed:
        entry = rules.existing(key, entry)
        numbers = erasure.check_erase(entry.row, entry.lease, seqs, fence)
        if not fresh:
            return MISSED
        own = [seq for seq in numbers if seq > entry.shared]
        settled = await heads.settled(entry, own[-1]) if own else entry
        return MISSED if settled is None else (settled, numbers)

    entry, numbers = await heads.settle(key, attempt)
    parts = {
        part.log: some
        for part in entries.segments(entry)
        if (some := [seq for seq in numbers if part.after < seq <= part.upto])
    }
    for log, some in parts.items():
        if log != entry.log:
            await _settle_base(heads, entry.scope, log, some[-1])
        async for _, found in _batches_with(db, entry.scope, log, some):
            erasure.check_erasable((e.seq, e.record["kind"], e.record.get("link")) for e in found)
    dropped = 0
    for log, some in parts.items():
        await blank_events(db, entry.scope, log, some, reason)
        await forget_events(db, entry.scope, log, some)
        await project_anew(db, heads, project, entry.scope, log)
        dropped += await drop_snapshots(db, entry.scope, log)
    return {"payloads": len(numbers), "snapshots": dropped}


async def _settle_base(heads: MongoHeads, scope: Scope, log: str, upto: int) -> None:
    """Move the events that are about to be erased out of the tail of the log that stores them."""
    while True:
        entry = await heads.by_log(scope, log)
        if entry is None or await heads.settled(entry, upto) is not None:
            return


async def blank_events(
    db: MongoDatabase,
    scope: Scope,
    log: str,
    seqs: Sequence[int],
    reason: str,
    *,
    damaged: bool = False,
) -> None:
    """Replace the data of events in `batches` with `{"erased": reason}`."""
    data = erased(reason)
    async for doc, found in _batches_with(db, scope, log, seqs):
        first = doc["first"]
        new = {f"events.{e.seq - first}": blank(e, data, damaged) for e in found}
        await db.batches.update_one(named(scope, _id=doc["_id"]), {"$set": new})
        if refs := [(e, ref) for e in found if (ref := ref_of(e.record))]:
            await blank_chunks(db, scope, [ref for _, ref in refs])
            gone = {f"events.{e.seq - first}.apart": "" for e, _ in refs}
            await db.batches.update_one(named(scope, _id=doc["_id"]), {"$unset": gone})


async def _batches_with(
    db: MongoDatabase, scope: Scope, log: str, seqs: Sequence[int]
) -> AsyncGenerator[tuple[Document, list[FoundEvent]], None]:
    """Yield the documents in `batches` that contain these events, each with the events found in
    it."""
    todo = sorted(seqs)
    while todo:
        doc = await db.batches.find_one(
            named(scope, log=log, last={"$gte": todo[0]}), sort=[("last", 1)], hint="last"
        )
        if doc is None:
            return
        wanted = set(todo)
        found = [event for event in numbered(batch_in(doc)) if event.seq in wanted]
        if found:
            yield doc, found
        todo = [seq for seq in todo if seq > doc["last"]]


async def project_anew(
    db: MongoDatabase, heads: MongoHeads, project: Project, scope: Scope, log: str
) -> None:
    """Rebuild the row of a log from its own events, and write it. Events that are appended during
    the rebuild are added, so that it completes even if the log is busy. After an erasure the
    rebuild starts again, because the row may contain data that was just erased."""
    row: Row | None = None
    erasures = 0
    while True:
        entry = await heads.by_log(scope, log)
        if entry is None or entry.state != LIVE:
            return
        row = await projected(db, project, entry, row if entry.erasures == erasures else None)
        erasures = entry.erasures
        row = replace(row, head=entry.row.head)
        if await heads.swap(entry, *entries.renewed(entry, row)):
            return


async def projected(
    db: MongoDatabase, project: Project, entry: MongoLogEntry, row: Row | None = None
) -> Row:
    """Return the row that results from the log's own events, starting from `row`."""
    if row is None:
        row = rules.empty_row(entry.row, entry.shared)
    async for events in all_events(db, entry, row.head):
        row = catalog.apply(row, events, [project(event) for event in events])
    return replace(row, link=hash_chain.ending(await kept_of(db, entry, row.head)))


async def kept_of(db: MongoDatabase, entry: MongoLogEntry, seq: int) -> bytes | None:
    """Return the stored link of an event of this log, or None if the event does not exist."""
    found = await found_events(db, entry, seq - 1, seq, 1, False)
    return found[0].record.get("link") if found else None


async def link_of(heads: MongoHeads, key: Key, seq: int, *, log: str | None = None) -> str | None:
    """Return the link of an event, including events that the log shares with its parent."""
    entry = await heads.existing(key, log)
    rules.check_at(entry.row, seq, "seq")
    return hash_chain.ending(await kept_of(heads.db, entry, seq))


async def family(db: MongoDatabase, scope: Scope, log: str) -> list[str]:
    """Return a log and all its direct and indirect forks."""
    found, newest = [log], [log]
    while newest:
        where = named(scope, base={"$in": newest})
        newest = [doc["_id"] async for doc in db.logs.find(where, {"_id": 1}, hint="base")]
        found += newest
    return found


async def drop_snapshots(db: MongoDatabase, scope: Scope, log: str) -> int:
    """Drop the snapshots of a log and of all its forks. Returns the number of dropped snapshots."""
    where = named(scope, log={"$in": await family(db, scope, log)})
    return (await db.snapshots.delete_many(where)).deleted_count
