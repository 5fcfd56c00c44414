"""Verification and repair of one log in an SQL database. Each function runs within one
transaction."""

from __future__ import annotations

from typing import Generic

from ...log.catalog import Row
from ...log.events import Scope
from .. import verify
from ..port import Damage
from ..verify import LogRange, StoredEvent
from .history import blank, by_holder, projected
from .tables import DEAD, LIVE, E, LogTables


class TablesCheck(Generic[E]):
    """Reads a log from the tables for `verify.check_log`."""

    def __init__(self, tables: LogTables[E], entry: E) -> None:
        self._tables = tables
        self._entry = entry
        self.row = entry.row
        self.lossy = tables.lossy

    async def parts(self) -> list[LogRange]:
        found = []
        for log, after, upto in await self._tables.segments(self._entry):
            if log == self._entry.id:
                found.append(LogRange(log, after, upto))
            elif await self._tables.state(log) == DEAD:
                deleted = (await self._tables.entry(log)).row.log
                found.append(LogRange(log, after, upto, deleted))
        return found

    async def left(self) -> bytes | None:
        base, shared = self._entry.base, self._entry.shared
        return b"" if base is None else await self._tables.kept(base, shared)

    async def events(self, part: LogRange, after: int) -> list[StoredEvent]:
        return await self._tables.events(self.row.key, part.log, after, part.upto)

    async def rebuilt(self) -> Row:
        return await projected(self._tables, self._entry)

    async def is_indexed(self, row: Row) -> bool:
        id = self._entry.id
        # Pending entries of a moved log are not checked: an older release may have left them.
        waits = row.sealed is not None or await self._tables.pending_ids(id) == set(row.pending)
        return waits and await self._tables.has_terms(id, row)

    async def claimed(self, tenant: str, name: str) -> Scope | None:
        return await self._tables.claimed(tenant, name)


async def check_log(tables: LogTables[E], id: int) -> list[Damage]:
    """Return the problems of a log, its row and its claims. Returns an empty list if the log was
    deleted meanwhile."""
    if await tables.state(id, "FOR SHARE") != LIVE:
        return []
    return await verify.check_log(TablesCheck(tables, await tables.entry(id)))


async def repair(tables: LogTables[E], id: int) -> list[Damage]:
    """Erase the data of unreadable events, and rebuild wrong rows. Returns the problems found. The
    check runs in the same transaction as the repair."""
    if await tables.state(id, "FOR UPDATE") != LIVE:
        return []
    found = await check_log(tables, id)
    segments = await tables.segments(await tables.entry(id))
    for log, seqs in by_holder(segments, verify.lost(found)).items():
        await blank(tables, log, seqs, "damaged", damaged=True)
    if verify.has_wrong_row(found):
        await tables.drop_snapshots(id, forks=False)
        row = await projected(tables, await tables.entry(id))
        await tables.save_row(id, None, row)
    return verify.repaired(found)
