"""Updates a full-text index with the new events of a store's logs, in batches.

The store returns the logs that changed since a mark. For each log, the indexer reads the events
after the indexed position. The index accepts them only if the position and the epoch of the session
have not changed, so events that were removed meanwhile are never added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress

from msgspec import Struct
from msgspec.structs import replace

from ...environment import new_id, wall_clock
from ...errors import LogDamaged, LogReplaced, SessionNotFound
from ...log.catalog import Row
from ...log.conversation import rewound_to
from ...log.events import Event
from ...log.search import EventText, event_text, named_calls
from ..port import Store
from .index import Advance, Doc, LogPosition, SeparateTextIndex, TextIndex, doc_of, known_mark
from .matching import with_tool

CLAIMED = 10.0  # seconds for which a process reserves the work
LOGS = 64  # logs and events that are written in one batch
EVENTS = 1_000
REST = 9  # pause after a batch, as a multiple of the batch's duration, while no caller waits
LONGEST_REST = 4.0  # seconds
AT_ONCE = 64  # events after which other tasks get a turn
TRIES = 5  # attempts for a log if events are removed at the same time
STALE_MS = 60_000  # after this time, an unfinished removal counts as interrupted


class ChangedLogs(Struct, frozen=True, kw_only=True):
    """The logs that changed since a mark, and the new mark. `whole` is true if these are all logs
    of the store."""

    rows: Sequence[Row]
    mark: str
    whole: bool = False


Changes = Callable[[str | None], Awaitable[ChangedLogs]]
Report = Callable[[int, int], None]


class _ClaimLost(Exception):
    """Another process indexes now."""


class Indexer:
    """Reads the events of a store, and writes their terms to an index."""

    def __init__(self, store: Store, index: TextIndex, changes: Changes) -> None:
        self._store = store
        self._index = index
        self._changes = changes
        self._owner = new_id()
        self._began = 0.0  # when the batch was begun
        self.hurry = asyncio.Event()
        """Set while a caller waits for the index."""

    async def catch_up(self, report: Report | None = None) -> bool:
        """Index all changes. Returns whether the index now contains all events that were in the
        store when the call began. Returns False if another process is indexing, or if events of a
        log were removed repeatedly meanwhile."""
        resumed, mark = await asyncio.gather(self._finish_removals(), self._index.mark())
        if resumed:
            mark = await self._index.mark()
        changed = await self._changes(known_mark(mark))
        if not (changed.rows or changed.whole):
            if changed.mark != mark:
                await self._index.set_mark(changed.mark, was=mark)
            return True
        if not await self._index.claim(self._owner, CLAIMED):
            return False
        try:
            return await self._index_changes(mark, changed, report)
        finally:
            await self._index.claim(self._owner, 0)  # another process may go on at once

    async def _index_changes(self, mark: str, changed: ChangedLogs, report: Report | None) -> bool:
        if changed.whole and await self._has_strangers(changed.rows):
            await self._index.reset()
            mark = await self._index.mark()
            changed = await self._changes(None)
        left = 0
        self._began = asyncio.get_running_loop().time()
        try:
            for start in range(0, len(changed.rows), LOGS):
                left += await self._index_logs(changed.rows[start : start + LOGS])
                if report is not None:
                    report(min(start + LOGS, len(changed.rows)), len(changed.rows))
        except _ClaimLost:
            return False
        if not left:
            await self._index.set_mark(changed.mark, was=mark)
        return not left

    async def _rest(self) -> None:
        """Pause after a batch to leave CPU time to other tasks, but no longer than until a caller
        waits for the index. Then claim the work again. Raises `_ClaimLost`."""
        loop = asyncio.get_running_loop()
        took = loop.time() - self._began
        with suppress(TimeoutError):
            async with asyncio.timeout(min(REST * took, LONGEST_REST)):
                await self.hurry.wait()
        if not await self._index.claim(self._owner, CLAIMED):
            raise _ClaimLost
        self._began = loop.time()

    async def _has_strangers(self, rows: Sequence[Row]) -> bool:
        """Return whether the index contains logs that do not exist in the store, for example after
        a backup was restored. The terms of their events cannot be computed, so only a reset removes
        them."""
        known = {row.log for row in rows}
        strange = [position for position in await self._index.logs() if position.log not in known]
        if not strange:
            return False
        found = await self._store.rows([position.key for position in strange[:LOGS]])
        return any(
            row is None or row.log != position.log
            for row, position in zip(found, strange, strict=False)
        )

    async def _finish_removals(self) -> bool:
        """Resume the indexing of sessions whose removal was interrupted. Returns whether there were
        any."""
        index = self._index
        if not isinstance(index, SeparateTextIndex):
            return False
        abandoned = await index.abandoned(wall_clock() - STALE_MS)
        for scope, owner in abandoned:
            logs = await index.bury(scope, owner)
            rows = await self._store.rows([position.key for position in logs])
            gone = [
                position.log
                for position, row in zip(logs, rows, strict=True)
                if row is None or row.log != position.log
            ]
            again = [position.log for position in logs if position.log not in gone]
            await index.unbury(scope, owner, gone=gone, again=again)
        return bool(abandoned)

    async def _index_logs(self, rows: Sequence[Row]) -> int:
        """Index some logs up to their heads. Returns the number of logs for which this failed."""
        todo = list(rows)
        for _ in range(TRIES):
            todo = await self._index_once(todo)
            if not todo:
                return 0
            await asyncio.sleep(0)
        return len(todo)

    async def _index_once(self, rows: Sequence[Row]) -> list[Row]:
        """Try once to index some logs up to their heads. Returns the logs to retry."""
        buried: list[Row] = []
        batch: list[Advance] = []
        positions = await self._index.positions(rows)
        tenants = {row.tenant for row in rows}
        numbers = {tenant: await self._index.tenant(tenant) for tenant in tenants}
        for row, first in zip(rows, positions, strict=True):
            if first.seq == row.head and first.link == row.link:
                continue
            if first.epoch is None:
                buried.append(row)
                continue
            if not await self._continues(row, first):
                await self._index.reset()
                return list(rows)
            position = first
            while position.seq < row.head:
                advance = await self._read(row, position, numbers[row.tenant])
                if advance is None:
                    break
                batch.append(advance)
                position = advance.after
                if sum(one.after.seq - one.before.seq for one in batch) >= EVENTS:
                    if await self._added(batch) < len(batch):
                        return list(rows)
                    batch = []
        if batch and await self._added(batch) < len(batch):
            return list(rows)
        return buried

    async def _added(self, batch: Sequence[Advance]) -> int:
        """Write a batch, and rest. Returns the number of logs that were written."""
        written = await self._index.add(batch)
        await self._rest()
        return written

    async def _continues(self, row: Row, position: LogPosition) -> bool:
        """Return whether the indexed events of a log are still the events in the store."""
        if position.seq == 0:
            return True
        if position.seq > row.head:
            return False
        try:
            link = await self._store.link(row.key, position.seq, log=row.log)
        except (SessionNotFound, LogReplaced):
            return True  # it was deleted meanwhile, and its terms too
        return link == position.link

    async def _read(self, row: Row, position: LogPosition, tenant: int) -> Advance | None:
        """Read the next events of a log, and return their index entries. Returns None if there are
        no new events, for example because the log was deleted."""
        seq, rewinds = position.seq, list(position.rewinds)
        docs: list[Doc] = []
        names: dict[str, str] = {}
        try:
            events = self._store.read(
                row.key, after=seq, before=row.head + 1, limit=EVENTS // 2, log=row.log
            )
            try:
                async with aclosing(events):
                    async for event in events:
                        names.update(named_calls(event))
                        seq = event.seq
                        if (to := rewound_to(event)) is not None:
                            rewinds.append((seq, to))
                        if (text := event_text(event)) is not None:
                            tools = await self._tools(row, event, text, names)
                            docs.append(doc_of(event, text, row.key, tenant, tools))
                        if seq % AT_ONCE == 0:
                            await asyncio.sleep(0)
            except LogDamaged as error:
                if seq == position.seq:
                    seq = error.seq  # skip this event
            if seq == position.seq:
                return None
            link = row.link
            if seq < row.head:
                link = await self._store.link(row.key, seq, log=row.log)
        except (SessionNotFound, LogReplaced):
            return None
        after = replace(position, seq=seq, link=link, rewinds=tuple(rewinds))
        return Advance(before=position, after=after, docs=docs)

    async def _tools(
        self, row: Row, event: Event, text: EventText, names: dict[str, str]
    ) -> tuple[str, ...]:
        """Return the tools that an event calls, or the tool whose result it has."""
        if text.call is None:
            return text.tools
        if text.call in names:
            return (names[text.call],)
        return (await with_tool(self._store, row, event, text)).tools
