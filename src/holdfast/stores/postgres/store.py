"""`PostgresStore`: a store in one schema of a PostgreSQL database.

Each method runs a function of `log`, `read`, `history`, `records`, `queries`, `remove` or `upkeep`
on a connection: in a transaction if it is more than one statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ...errors import StoreUnavailable
from ...log import catalog
from ...log.catalog import Parent, Project, Row
from ...log.codec import LIMITS
from ...log.events import Appended, Event, Key, NewEvent, Scope
from ...values.records import Receipt, Remains
from ...values.stream_items import CaughtUp
from .. import paging, rules
from ..checked import CheckedStore
from ..notify import Wakes, follow
from ..paging import batches, read_in_pages
from ..port import BlobRef, Damage, Lease, StoreInfo
from ..rules import APART
from . import history, queries, records, remove, schema, upkeep
from . import log as logs
from . import read as reading
from .calls import Calls
from .database import CLOCK, FOR_EVER, SLOW, AnyPool, Link, PostgresDatabase
from .log import KnownHeads, PostgresAppend
from .methods import runs
from .notices import PostgresNotices

T = TypeVar("T")

RESTORE_MS = 60_000  # after this time without progress, a restore counts as interrupted


class PostgresStore(CheckedStore):
    """Sessions in a PostgreSQL database. Open it with `holdfast.connect("postgresql://…")`."""

    def __init__(
        self, database: PostgresDatabase, *, project: Project, clock: Callable[[], int] | None
    ) -> None:
        self._database = database
        self._run = database.run
        self._project = project
        self._given_clock = clock
        self._clock = clock or database.clock
        self._heads = KnownHeads()
        self._calls = Calls(database, logs.APPEND)
        self._wakes = Wakes()
        self._notices = PostgresNotices(database, self._wakes)

    @classmethod
    async def open(
        cls,
        url: str = "postgresql://",
        *,
        pool: AnyPool | None = None,
        project: Project = catalog.project,
        clock: Callable[[], int] | None = None,
    ) -> PostgresStore:
        """Connect, and create or migrate the schema; safe for many processes at once.

        With `pool`, its connections are used, the URL gives only options, and `aclose` leaves the
        pool open. Without `clock`, the server's time is used.
        """
        database = await PostgresDatabase.open(url, pool=pool)
        try:
            if not await database.run(schema.check, whole=False):
                if not database.options.migrates:
                    raise schema.outdated(database.options.schema)
                await database.run(schema.migrate, within=FOR_EVER)
            await database.see_to_flushing()
            await database.set_clock()
        except BaseException:
            await database.aclose()
            raise
        return cls(database, project=project, clock=clock)

    async def _timed(
        self, job: Callable[[Link, int], Awaitable[T]], within: float | None = None
    ) -> T:
        """Run a transaction that needs the time, which is the server's at that moment."""

        async def told(link: Link) -> T:
            return await job(link, await self._now(link))

        return await self._run(told, within=within)

    async def _now(self, link: Link) -> int:
        now: int = self._given_clock() if self._given_clock else await link.value(CLOCK)
        return now

    # The log

    async def append(
        self,
        key: Key,
        events: Sequence[NewEvent],
        *,
        expected: int | None = None,
        fence: Lease | None = None,
        log: str | None = None,
        create: bool = False,
    ) -> Appended:
        append = PostgresAppend(
            self._database,
            self._calls,
            self._heads,
            self._project,
            self._clock,
            key,
            events,
            sum([len(event.data) for event in events]),
            expected=expected,
            fence=fence,
            log=log,
            create=create,
        )
        done = await append()
        if done.fresh:
            self._notices.grew(key, append.written)
        return done

    def read(
        self,
        key: Key,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
        log: str | None = None,
        inline: bool = True,
    ) -> AsyncGenerator[Event, None]:
        return read_in_pages(
            self._page,
            key,
            after=after,
            before=before,
            limit=limit,
            reverse=reverse,
            log=log,
            inline=inline,
        )

    async def _page(self, key: Key, **bounds: Any) -> paging.Page:
        page = await self._run(
            lambda link: reading.read_page(link, key, **bounds), whole=False, within=SLOW
        )
        if page[2] is not None:
            # The log may have been deleted between two statements: read again, at one moment.
            page = await self._run(lambda link: _at_one_moment(link, key, bounds), within=SLOW)
        return page

    link = runs(logs.link_of)

    def follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        self._database.own_loop.check()
        self._notices.follow()
        return follow(self, self._wakes, key, after, log)

    async def fork(self, key: Key, thread: str, *, at: int, first: NewEvent) -> None:
        await self._timed(
            lambda link, now: history.fork(link, self._project, now, key, thread, at, first)
        )

    async def restore(
        self, key: Key, events: AsyncIterable[Event], *, parent: Parent | None = None
    ) -> None:
        await self._sweep()  # discards what a crashed restore left behind
        id = await self._timed(
            lambda link, now: history.begin_restore(link, now, now + RESTORE_MS, key, parent)
        )
        try:
            async for some in batches(events):
                await self._restore_some(id, some)
            await self._run(lambda link: history.end_restore(link, key, id))
        except BaseException:
            with suppress(StoreUnavailable):  # otherwise a later sweep removes it
                await asyncio.shield(self._discard(id))
            raise
        self._notices.grew(key)

    async def _restore_some(self, id: int, events: list[Event]) -> None:
        await self._timed(
            lambda link, now: history.restore_some(
                link, self._project, now + RESTORE_MS, id, events
            ),
            within=SLOW,
        )

    async def _discard(self, id: int) -> None:
        await self._run(
            lambda link: link.run(
                "UPDATE hf.logs SET until = -1 WHERE id = $1 AND state = $2", id, schema.RESTORING
            )
        )
        await self._sweep()

    async def erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> Receipt:
        removed = await self._run(
            lambda link: history.erase(link, self._project, key, seqs, reason, fence), within=SLOW
        )
        return Receipt(removed=removed, remains=self._left_behind())

    async def delete(self, target: Scope | Key, *, fence: Lease | None = None) -> Receipt:
        removed, rows = await self._run(lambda link: remove.hide(link, target, fence), within=SLOW)
        for row in rows:
            self._heads.drop(row.key)
            self._notices.grew(row.key)
        await self._sweep()
        deleted = [row.log for row in rows]
        shared = await self._run(lambda link: remove.shared_still(link, deleted), whole=False)
        counted = {sort: removed[sort] for sort in rules.SORTS}
        return Receipt(removed=counted, remains=(*shared, *self._left_behind()))

    async def _sweep(self) -> None:
        # More than once: a removed log may have been the last to share another's events.
        while ids := await self._timed(remove.hidden):
            for id in ids:
                while await self._run(partial(remove.sweep, id=id), within=SLOW):
                    pass

    def _left_behind(self) -> tuple[Remains, ...]:
        where = self._database.options.location
        return (
            Remains(
                where=where,
                what="dead rows, until they are vacuumed and their space is used again",
                remedy="holdfast purge; VACUUM FULL for every byte at once",
            ),
            Remains(
                where=f"{where}, write-ahead log",
                what="the original changes",
                remedy="recycled by checkpoints; archives and backups have their own retention",
            ),
        )

    # The catalog

    async def row(self, key: Key) -> Row | None:
        entry = await self._run(lambda link: logs.lookup(link, key), whole=False)
        return entry.row if entry else None

    find = runs(queries.find)
    pending = runs(queries.pending)
    claim = runs(records.claim)
    unclaim = runs(records.unclaim)
    claims = runs(records.claims)

    # Driving

    async def runnable(self, tenant: str, *, agents: Sequence[str], limit: int = 100) -> list[Key]:
        return await self._timed(
            lambda link, now: queries.runnable(link, now, tenant, agents, limit)
        )

    async def acquire(
        self, key: Key, owner: str, *, ttl: float = 15.0, steal: str | None = None
    ) -> Lease:
        acquire = records.Acquire(key, owner, ttl, steal)
        return await self._run(lambda link: acquire(link, lambda: self._now(link)))

    async def renew(self, lease: Lease) -> Lease:
        return await self._timed(lambda link, now: records.renew(link, now, lease))

    release = runs(records.release, whole=True)
    put_draft = runs(records.put_draft)
    drafts = runs(records.drafts, whole=True)

    # Blobs and snapshots

    async def put_blob(self, scope: Scope, data: bytes, *, sha256: str | None = None) -> BlobRef:
        name = rules.blob_name(data, sha256)
        return await self._run(lambda link: records.put_blob(link, scope, data, name), within=SLOW)

    get_blob = runs(records.get_blob, within=SLOW)
    blobs = runs(records.blobs)
    save_snapshot = runs(records.save_snapshot, whole=True)
    load_snapshot = runs(records.load_snapshot)

    # Upkeep

    async def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        after = 0
        while ids := await self._run(partial(upkeep.logs_of, target=target, after=after)):
            for id in ids:
                found = await self._run(
                    partial(upkeep.check_log, project=self._project, id=id), within=SLOW
                )
                if found and repair:
                    found = await self._run(
                        partial(upkeep.repair, project=self._project, id=id), within=SLOW
                    )
                for damage in found:
                    yield damage
            after = ids[-1]

    async def purge(self) -> Receipt:
        await self._sweep()
        for table in schema.TABLE_NAMES:
            await self._database.alone(f"VACUUM hf.{table}")
        return Receipt(remains=self._left_behind())

    def info(self) -> StoreInfo:
        return StoreInfo(
            kind="postgres",
            location=self._database.options.location,
            durability="machine",
            schema=schema.VERSION,
            limits=LIMITS,
            apart=APART,
        )

    async def aclose(self) -> None:
        await self._notices.aclose()
        await self._database.aclose()
        self._wakes.wake_all()


async def _at_one_moment(link: Link, key: Key, bounds: dict[str, Any]) -> paging.Page:
    await link.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    return await reading.read_page(link, key, **bounds)
