"""The operations on tables that the PostgreSQL and SQLite stores share, implemented for a
PostgreSQL connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from asyncpg import UniqueViolationError
from msgspec import Raw

from ...log.catalog import Project, Row
from ...log.events import Key, Scope
from .. import rules
from ..frames import packed
from ..paging import PAGE_EVENTS
from ..rules import Extension
from ..sql.tables import LIVE, RESTORING, KeptHash, Lock, Segment
from ..verify import ALTERED, StoredEvent
from . import log as logs
from .columns import digests, encode, event_of
from .database import Link
from .log import PostgresLogEntry
from .read import readable, records_of


class PostgresTables(NamedTuple):
    """Implements the interface `LogTables` for a PostgreSQL transaction."""

    link: Link
    project: Project
    clock: Callable[[Link], Awaitable[int]]

    @property
    def lossy(self) -> bool:
        return False

    async def now(self) -> int:
        return await self.clock(self.link)

    # Logs

    async def lookup(self, key: Key) -> PostgresLogEntry | None:
        return await logs.lookup(self.link, key)

    async def locked(self, key: Key) -> PostgresLogEntry:
        return await logs.existing(self.link, key)

    async def entry(self, id: int) -> PostgresLogEntry:
        return await logs.entry_by_id(self.link, id)

    async def state(self, id: int, lock: Lock = "") -> int | None:
        state: int | None = await self.link.value(
            f"SELECT state FROM hf.logs WHERE id = $1 {lock}", id
        )
        return state

    async def segments(self, entry: PostgresLogEntry) -> list[Segment]:
        return await logs.segments(self.link, entry)

    async def begin(
        self, row: Row, *, base: int | None, shared: int, state: int, until: int = 0
    ) -> PostgresLogEntry | None:
        id = await logs.begin(self.link, row, base=base, shared=shared, state=state, until=until)
        return None if id is None else await self.entry(id)

    async def save_row(self, id: int, old: Row | None, new: Row) -> None:
        await logs.save_row(self.link, id, old, new)

    # Events

    async def known_ids(self, entry: PostgresLogEntry, ids: Sequence[str]) -> dict[str, int]:
        return await logs.known_ids(self.link, entry, ids)

    async def kept(self, log: int, seq: int) -> bytes | None:
        kept: bytes | None = await self.link.value(
            "SELECT link FROM hf.events WHERE log = $1 AND seq = $2", log, seq
        )
        return kept

    async def write(self, entry: PostgresLogEntry, plan: Extension) -> None:
        await logs.write(self.link, entry.id, plan)
        await logs.save_row(self.link, entry.id, None, plan.row)

    async def events(self, key: Key, log: int, after: int, upto: int) -> list[StoredEvent]:
        found = await records_of(self.link, log, after, upto, PAGE_EVENTS, False, True, links=True)
        return [
            StoredEvent(
                (event := readable(record)) or event_of(record, b"null"),
                record["hash"],
                record["link"],
                ALTERED if event is None else None,
            )
            for record in found
        ]

    async def hashes(self, log: int, seqs: Sequence[int]) -> list[tuple[Any, ...]]:
        found = await self.link.rows(
            "SELECT seq, id, kind, v, hash, link FROM hf.events"
            " WHERE log = $1 AND seq = ANY ($2::bigint[])",
            log,
            list(seqs),
        )
        return [tuple(record) for record in found]

    async def replace(self, log: int, data: Raw, kept: dict[int, KeptHash]) -> None:
        await self.link.run(
            "UPDATE hf.events AS e SET data = $5, hash = n.hash, link = n.link"
            " FROM unnest($2::bigint[], $3::bytea[], $4::bytea[]) AS n (seq, hash, link)"
            " WHERE e.log = $1 AND e.seq = n.seq",
            log,
            list(kept),
            [one.hash for one in kept.values()],
            [one.link for one in kept.values()],
            packed(data),
        )

    async def erasing(self, parts: dict[int, list[int]], reason: str) -> None:
        pass  # the transaction erases all or none

    # Restores

    async def restoring(self, log: str) -> PostgresLogEntry:
        found = await self.link.row("SELECT id, state FROM hf.logs WHERE log = $1 FOR UPDATE", log)
        # If the state is LIVE, an earlier attempt did it, and its reply was lost.
        if found is None or found["state"] not in (RESTORING, LIVE):
            raise rules.restore_discarded()
        return await self.entry(found["id"])

    async def write_restored(self, entry: PostgresLogEntry, plan: Extension, until: int) -> None:
        await logs.write(self.link, entry.id, plan)
        await self.link.run(
            "UPDATE hf.logs SET version = version + 1, doc = $2, until = $3 WHERE id = $1",
            entry.id,
            encode(plan.row),
            until,
        )

    async def publish(self, entry: PostgresLogEntry, key: Key) -> None:
        try:
            await self.link.run(
                "UPDATE hf.logs SET state = $2, tenant = $3, session = $4, thread = $5, until = 0"
                " WHERE id = $1",
                entry.id,
                LIVE,
                key.tenant,
                key.session,
                key.thread,
            )
        except UniqueViolationError as error:
            # Another process gave a log this key at the same moment.
            raise rules.exists(key) from error
        await logs.save_row(self.link, entry.id, None, entry.row)

    # Snapshots, lists and claims

    async def drop_snapshots(self, log: int, *, forks: bool) -> int:
        if not forks:
            return await self.link.run("DELETE FROM hf.snapshots WHERE log = $1", log)
        return await self.link.run(
            "WITH RECURSIVE family (id) AS (SELECT $1::bigint UNION"
            " SELECT l.id FROM hf.logs AS l JOIN family ON l.base = family.id)"
            " DELETE FROM hf.snapshots AS s USING family WHERE s.log = family.id",
            log,
        )

    async def has_terms(self, id: int, row: Row) -> bool:
        found = await self.link.rows("SELECT term FROM hf.terms WHERE log = $1 ORDER BY term", id)
        return [term for (term,) in found] == digests(row)

    async def pending_ids(self, id: int) -> set[str]:
        found = await self.link.rows("SELECT id FROM hf.pending WHERE log = $1", id)
        return {item for (item,) in found}

    async def claimed(self, tenant: str, name: str) -> Scope | None:
        session = await self.link.value(
            "SELECT session FROM hf.claims WHERE tenant = $1 AND name = $2", tenant, name
        )
        return None if session is None else Scope(tenant, session)
