"""Appending to a log and reading it.

`rules.extend` decides an append based on a copy of the head. One update of the head document
applies the append, if the copy is current.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from ...errors import HoldfastError
from ...log.catalog import Project, RowChange
from ...log.events import Event, Key
from .. import rules
from ..paging import PAGE_EVENTS, Page, ReadBounds, dense
from ..rules import AppendRequest, Extension
from ..verify import StoredEvent
from . import entry as entries
from .batches import found_events, known_ids, known_in_batches, known_in_tail, named
from .entry import Document, MongoLogEntry
from .event_records import Batch, FoundEvent, event_of
from .heads import MISSED, Missed, MongoHeads
from .payloads import Spill, events_of
from .remove import finish
from .schema import MongoDatabase

NEAR = 100  # events read together with the head; at most 64 KiB each, so less than 16 MB


class MongoAppend:
    """One append operation, including its retries."""

    def __init__(
        self, db: MongoDatabase, heads: MongoHeads, project: Project, request: AppendRequest
    ) -> None:
        self._db = db
        self._heads = heads
        self._project = project
        self._request = request
        self._key = request.key
        self._ids = request.ids
        self._spill = Spill(db)
        self._unsure = False
        self._newborn: MongoLogEntry | None = None
        self._known: dict[str, int] = {}
        self._looked: tuple[str, int] = ("", 0)

    async def run(self) -> Extension:
        """Append the events, unless an earlier attempt already appended them."""
        try:
            done = await self._heads.settle(self._key, self._attempt)
        except HoldfastError:
            await self._take_back(None)
            raise
        if not done.fresh:
            await self._take_back(None)
        return done

    async def _take_back(self, but: Batch | None) -> None:
        """Remove the chunks that no event refers to. If a reply was lost, it is unknown which
        chunks are unused, and `purge` removes them later."""
        if not self._unsure:
            await self._spill.take_back(but=but)

    async def _attempt(self, entry: MongoLogEntry | None, fresh: bool) -> Extension | Missed:
        begins = entry is None and self._request.begins
        if begins:
            entry = await self._new_log()
        entry = rules.existing(self._key, entry, self._request.log)
        now = entry.row.created if begins else await self._now(entry)
        known = {} if begins else await self._known_ids(entry)
        plan = self._request.decide(entry.row, entry.lease, known, project=self._project, now=now)
        if not plan.fresh:
            return plan if fresh else MISSED
        return await self._write(entry, plan, begins)

    async def _new_log(self) -> MongoLogEntry:
        if self._newborn is None:
            row = rules.new_row(self._key, await self._db.clock.now())
            self._newborn = entries.newborn(row)
        return self._newborn

    async def _now(self, entry: MongoLogEntry) -> int:
        if self._request.acquire is not None:
            return await self._heads.lease_time(entry)
        return await self._db.clock.now()

    async def _write(
        self, entry: MongoLogEntry, plan: Extension, begins: bool
    ) -> Extension | Missed:
        batch = await self._spill.batch(self._key, entry.log, plan)
        try:
            after = await self._carry_out(entry, plan, batch, begins)
        except BaseException:
            self._unsure = True
            raise
        if after is None:
            return MISSED
        if after.drafts:
            await drop_drafts(self._db, after, plan.changes)
        await self._take_back(batch)
        return plan

    async def _carry_out(
        self, entry: MongoLogEntry, plan: Extension, batch: Batch, begins: bool
    ) -> MongoLogEntry | None:
        if not begins:
            return await self._heads.extend(entry, plan, batch)
        await finish(self._db, self._key.scope)
        lease = plan.lease_state or entry.lease
        after = entry._replace(row=plan.row, tail=(batch,), lease=lease)
        return after if await self._heads.begin(after) else None

    async def _known_ids(self, entry: MongoLogEntry) -> dict[str, int]:
        """Return the event number of each id that is found in the log. In a retry, only the tail is
        searched, if it contains all events that were appended since the previous attempt."""
        log, upto = self._looked
        if log != entry.log or entry.rolled > upto:
            self._known = await known_in_batches(self._db, entry, self._ids)
        self._known.update(known_in_tail(entry, self._ids))
        self._looked = (entry.log, entry.row.head)
        return self._known


async def drop_drafts(
    db: MongoDatabase, entry: MongoLogEntry, changes: Sequence[RowChange]
) -> None:
    """Remove the drafts of messages that are now complete."""
    messages = [op.key for change in changes for op in change if op.do == "drop_draft"]
    if messages:
        await db.drafts.delete_many(
            named(entry.scope, log=entry.log, message={"$in": messages}), hint="log"
        )


# Reading


async def seqs_of(
    heads: MongoHeads, key: Key, ids: Sequence[str], *, log: str | None = None
) -> dict[str, int]:
    """Return the event number of each id that is found in the log."""
    return await known_ids(heads.db, await heads.existing(key, log), ids)


class PageReader:
    """Reads a log page by page."""

    def __init__(self, db: MongoDatabase, heads: MongoHeads) -> None:
        self._db = db
        self._heads = heads
        self._entry: MongoLogEntry | None = None

    async def page(self, key: Key, bounds: ReadBounds) -> Page:
        """Return the next page. The head from the previous page is reused as long as the requested
        events are in `batches`. Damage is reported only after the head was read again, because a
        log that is deleted or erased during a read looks damaged too."""
        entry = self._entry
        if entry is not None and (bounds.reverse or bounds.after < entry.rolled):
            page = await _page(self._db, entry, bounds)
            if page[2] is None and page[1]:
                return page
        page = await self._fresh_page(key, bounds)
        return page if page[2] is None else await self._fresh_page(key, bounds)

    async def _fresh_page(self, key: Key, bounds: ReadBounds) -> Page:
        near = None
        if bounds.reverse and bounds.before is None and bounds.page <= NEAR:
            self._entry, near = await self._heads.newest(key, bounds.page, bounds.log)
        else:
            self._entry = await self._heads.existing(key, bounds.log)
        return await _page(self._db, self._entry, bounds, near)


async def _page(
    db: MongoDatabase, entry: MongoLogEntry, bounds: ReadBounds, near: list[Document] | None = None
) -> Page:
    after, reverse, upto = bounds.after, bounds.reverse, bounds.upto(entry.row.head)
    if after >= upto:
        return entry.log, [], None
    found = await found_events(db, entry, after, upto, bounds.page, reverse, near)
    found, gap = dense(entry.key, after, upto, found, reverse=reverse)
    events, spoiled = await events_of(db, entry.key, found, inline=bounds.inline)
    return entry.log, events, spoiled or gap


async def stored_events(
    db: MongoDatabase, key: Key, found: Sequence[FoundEvent]
) -> list[StoredEvent]:
    """Return the events of some records. A damaged event has no data and comes with a description
    of the damage."""
    read: list[StoredEvent] = []
    while len(read) < len(found):
        events, damage = await events_of(db, key, found[len(read) :], inline=True)
        for event in events:
            read.append(_stored(found[len(read)], event))
        if damage is not None:
            bad = found[len(read)]
            read.append(_stored(bad, event_of(bad, b"null"), damage.problem))
    return read


def _stored(found: FoundEvent, event: Event, problem: str | None = None) -> StoredEvent:
    return StoredEvent(event, found.record["hash"], found.record.get("link"), problem)


async def all_events(
    db: MongoDatabase, entry: MongoLogEntry, after: int
) -> AsyncGenerator[list[Event], None]:
    """Yield the events after a number, page by page, for a head that was already read. A damaged
    event has no data. The first gap ends the read."""
    while after < entry.row.head:
        found = await found_events(db, entry, after, entry.row.head, PAGE_EVENTS, False)
        whole, _ = dense(entry.key, after, entry.row.head, found, reverse=False)
        if not whole:
            return
        yield [stored.event for stored in await stored_events(db, entry.key, whole)]
        after = whole[-1].seq
