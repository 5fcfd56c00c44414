"""The log: append and read.

`rules.extend` decides an append on a copy of the head; one update of the head document applies it,
if the copy is current.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from ...errors import HoldfastError, LogDamaged
from ...log.catalog import Project, RowChange
from ...log.events import Appended, Event, Key, NewEvent
from .. import rules
from ..links import seals
from ..paging import dense
from ..port import Lease
from ..rules import Extension
from . import entry as entries
from .batches import PAGE_EVENTS, found_events, known_in_batches, known_in_tail, named
from .entry import MongoLogEntry
from .event_records import Batch, event_of
from .heads import MISSED, Missed, MongoHeads
from .payloads import Spill, events_of
from .remove import finish
from .schema import MongoDatabase


class Guards(NamedTuple):
    """The conditions of an append."""

    expected: int | None
    fence: Lease | None
    log: str | None
    create: bool


class MongoAppend:
    """One append, over all its attempts."""

    def __init__(
        self,
        db: MongoDatabase,
        heads: MongoHeads,
        project: Project,
        key: Key,
        events: Sequence[NewEvent],
        guards: Guards,
    ) -> None:
        self._db = db
        self._heads = heads
        self._project = project
        self._key = key
        self._events = events
        self._seals = seals(events)
        self._ids = [event.id for event in events]
        self._guards = guards
        self._spill = Spill(db)
        self._unsure = False
        self._newborn: MongoLogEntry | None = None
        self._known: dict[str, int] = {}
        self._looked: tuple[str, int] = ("", 0)
        self.written: Extension | None = None

    async def run(self) -> Appended:
        """Append, or find that it was already done."""
        try:
            appended = await self._heads.settle(self._key, self._attempt)
        except HoldfastError:
            await self._take_back(None)
            raise
        if not appended.fresh:
            await self._take_back(None)
        return appended

    async def _take_back(self, but: Batch | None) -> None:
        """Remove the chunks that nothing refers to. After a lost reply that is unknown, and they
        are left to `purge`."""
        if not self._unsure:
            await self._spill.take_back(but=but)

    async def _attempt(self, entry: MongoLogEntry | None, fresh: bool) -> Appended | Missed:
        now = await self._db.clock.now()
        begins = entry is None and self._guards.create and self._guards.log is None
        if begins:
            entry = self._newborn = self._newborn or entries.newborn(rules.new_row(self._key, now))
        rules.found(self._key, entry.row if entry else None, self._guards.log)
        assert entry is not None
        known = {} if begins else await self._known_ids(entry)
        plan = rules.extend(
            entry.row,
            entry.lease,
            self._events,
            self._seals,
            known,
            project=self._project,
            now=now,
            expected=self._guards.expected,
            fence=self._guards.fence,
        )
        if not plan.fresh:
            return Appended(plan.seqs, plan.row.head, 0) if fresh else MISSED
        return await self._write(entry, plan, begins)

    async def _write(
        self, entry: MongoLogEntry, plan: Extension, begins: bool
    ) -> Appended | Missed:
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
        self.written = plan
        return Appended(plan.seqs, plan.row.head, len(plan.fresh))

    async def _carry_out(
        self, entry: MongoLogEntry, plan: Extension, batch: Batch, begins: bool
    ) -> MongoLogEntry | None:
        if not begins:
            return await self._heads.extend(entry, plan.row, batch)
        await finish(self._db, self._key.scope)
        after = entry._replace(row=plan.row, tail=(batch,))
        return after if await self._heads.begin(after) else None

    async def _known_ids(self, entry: MongoLogEntry) -> dict[str, int]:
        """The numbers of those of these ids that are in the log. After a lost race only the tail is
        searched again, if it holds everything appended since."""
        log, upto = self._looked
        if log != entry.log or entry.rolled > upto:
            self._known = await known_in_batches(self._db, entry, self._ids)
        self._known.update(known_in_tail(entry, self._ids))
        self._looked = (entry.log, entry.row.head)
        return self._known


async def drop_drafts(
    db: MongoDatabase, entry: MongoLogEntry, changes: Sequence[RowChange]
) -> None:
    """Remove the drafts of messages that are complete."""
    messages = [op.key for change in changes for op in change if op.do == "drop_draft"]
    if messages:
        await db.drafts.delete_many(
            named(entry.scope, log=entry.log, message={"$in": messages}), hint="log"
        )


# Reading


class MongoPage(NamedTuple):
    """Some events, and what stopped the read, if anything."""

    entry: MongoLogEntry
    events: list[Event]
    damage: Exception | None


class ReadBounds(NamedTuple):
    """The range and options of a read."""

    after: int
    before: int | None
    limit: int | None
    reverse: bool
    inline: bool

    def behind(self, events: Sequence[Event]) -> ReadBounds:
        """The bounds that continue after these events."""
        limit = None if self.limit is None else self.limit - len(events)
        if self.reverse:
            return self._replace(before=events[-1].seq, limit=limit)
        return self._replace(after=events[-1].seq, limit=limit)


async def read_page(
    db: MongoDatabase,
    heads: MongoHeads,
    key: Key,
    bounds: ReadBounds,
    log: str | None,
    entry: MongoLogEntry | None,
) -> MongoPage:
    """One page. `entry` is the head from the previous page, which is used as long as the requested
    events are in `batches`. Damage is reported only after the head was read again: a log that is
    deleted or erased during a read looks damaged too."""
    if entry is not None and (bounds.reverse or bounds.after < entry.rolled):
        page = await _page(db, entry, bounds)
        if page.damage is None and page.events:
            return page
    page = await _page(db, await heads.existing(key, log), bounds)
    if page.damage is not None:
        page = await _page(db, await heads.existing(key, log), bounds)
    return page


async def _page(db: MongoDatabase, entry: MongoLogEntry, bounds: ReadBounds) -> MongoPage:
    after, before, most, reverse, inline = bounds
    upto = entry.row.head if before is None else min(before - 1, entry.row.head)
    if after >= upto:
        return MongoPage(entry, [], None)
    limit = PAGE_EVENTS if most is None else min(most, PAGE_EVENTS)
    found = await found_events(db, entry, after, upto, limit, reverse)
    found, gap = dense(entry.key, after, upto, found, reverse=reverse)
    events, spoiled = await events_of(db, entry.key, found, inline=inline)
    return MongoPage(entry, events, spoiled or gap)


async def all_events(
    db: MongoDatabase, entry: MongoLogEntry, after: int
) -> AsyncGenerator[list[Event], None]:
    """The events of a head that was read, after a number, page by page. A damaged event comes
    without its data, and the first gap ends the read."""
    while after < entry.row.head:
        found = await found_events(db, entry, after, entry.row.head, PAGE_EVENTS, False)
        whole, _ = dense(entry.key, after, entry.row.head, found, reverse=False)
        if not whole:
            return
        page: list[Event] = []
        while len(page) < len(whole):
            events, damage = await events_of(db, entry.key, whole[len(page) :], inline=True)
            page += events
            if damage is not None:
                assert isinstance(damage, LogDamaged)
                page.append(event_of(whole[len(page)], b"null"))
        yield page
        after = whole[-1].seq
