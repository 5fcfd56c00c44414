"""`PostgresStore`: a store in one schema of a PostgreSQL database.

Each method runs a function of `log`, `read`, `records`, `queries` or `remove`, or of the package
`sql`, on a connection: in a transaction if it is more than one statement.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from functools import partial

from ...log import catalog
from ...log.catalog import Project, Row
from ...log.codec import LIMITS
from ...log.events import Event, Key, Scope
from ...values.records import Receipt, Remains
from ...values.stream_items import CaughtUp
from ..base import BaseStore
from ..blobs import blob_name
from ..notify import Wakes, follow
from ..paging import Fetch, Page, ReadBounds
from ..port import BlobRef, Damage, Lease, StoreInfo
from ..rules import APART, AppendRequest, Extension
from ..search import TextSearch
from ..sql import history, verification
from ..sql.history import Restore
from ..sql.tables import LIVE
from . import log as logs
from . import queries, records, remove, schema
from . import read as reading
from .calls import Calls
from .database import CLOCK, FOR_EVER, SLOW, AnyPool, Link, PostgresDatabase
from .jobs import on_link, on_tables
from .log import KnownHeads, PostgresAppend
from .notices import PostgresNotices
from .tables import PostgresTables
from .text_index import PostgresTextIndex


class PostgresStore(BaseStore[Restore]):
    """A store in a PostgreSQL database. Open it with `holdfast.connect("postgresql://…")`."""

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
        index = PostgresTextIndex(database)
        self._texts: TextSearch = TextSearch(self, index, index.changes)

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

    def _tables(self, link: Link) -> PostgresTables:
        return PostgresTables(link, self._project, self._now)

    async def _now(self, link: Link) -> int:
        """Return the current time: the server's time, or the time of the caller's clock."""
        now: int = self._given_clock() if self._given_clock else await link.value(CLOCK)
        return now

    # The log

    async def _append(self, request: AppendRequest) -> Extension:
        append = PostgresAppend(
            self._database, self._calls, self._heads, self._project, self._clock, request
        )
        done = await append()
        if done.fresh:
            self._notices.grew(request.key, done, append.version)
        return done

    def _fetch(self) -> Fetch:
        return self._page

    async def _page(self, key: Key, bounds: ReadBounds) -> Page:
        page = await self._run(
            lambda link: reading.read_page(link, key, bounds), whole=False, within=SLOW
        )
        if page[2] is not None:
            # The log may have been deleted between two statements: read again in one snapshot.
            page = await self._run(
                lambda link: reading.read_page(link, key, bounds), snapshot=True, within=SLOW
            )
        return page

    seqs = on_link(logs.seqs, whole=True, snapshot=True)
    locate = on_link(queries.locate, within=SLOW)
    link = on_tables(history.link_of)

    def follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        self._database.own_loop.check()
        self._notices.follow()
        return follow(self, self._wakes, key, after, log)

    fork = on_tables(history.fork)
    _begin_restore = on_tables(history.begin_restore)
    _restore_some = on_tables(history.restore_some, within=SLOW)
    _end_restore = on_tables(history.end_restore)
    _erase = on_tables(history.erase, within=SLOW)

    async def _discard(self, restore: Restore, error: BaseException) -> None:
        async def discard() -> None:
            await self._run(partial(remove.discard, log=restore.log))
            await self._sweep(None)

        await asyncio.shield(discard())

    def _restored(self, key: Key) -> None:
        self._notices.grew(key)

    async def _hide(
        self, target: Scope | Key, fence: Lease | None, expected: int | None
    ) -> tuple[Counter[str], list[str]]:
        removed, rows = await self._run(remove.Hide(target, fence, expected), within=SLOW)
        for row in rows:
            self._heads.drop(row.key)
            self._notices.grew(row.key)
        return removed, [row.log for row in rows]

    async def _sweep(self, scope: Scope | None) -> None:
        # Repeat this: a removed log may have been the last fork that shared another log's events.
        while ids := await self._hidden():
            for id in ids:
                while await self._run(partial(remove.sweep, id=id), within=SLOW):
                    pass

    _hidden = on_tables(remove.hidden)
    _shared_still = on_link(remove.shared_still)

    def _left_behind(self) -> tuple[Remains, ...]:
        return (*self._left_in_tables(), *self._texts.left_behind(self._search_location()))

    def _left_in_tables(self) -> tuple[Remains, ...]:
        where = self._database.options.location
        return (
            Remains(
                where=where,
                what="removed data in dead rows, until vacuumed and overwritten",
                remedy="run `holdfast purge`, or VACUUM FULL to free all space immediately",
            ),
            Remains(
                where=f"{where}, write-ahead log",
                what="entries with the removed data",
                remedy="wait for checkpoints; archives and backups have their own retention",
            ),
        )

    def _search_location(self) -> str:
        return f"{self._database.options.location}, index search_docs_terms"

    # The catalog

    async def row(self, key: Key) -> Row | None:
        entry = await self._run(lambda link: logs.lookup(link, key), whole=False)
        return entry.row if entry else None

    rows = on_link(queries.rows)
    find = on_link(queries.find)
    pending = on_link(queries.pending)
    claim = on_link(records.claim)
    unclaim = on_link(records.unclaim)
    claims = on_link(records.claims)

    # Driving

    runnable = on_tables(queries.runnable)
    due_tenants = on_tables(queries.due_tenants)
    holder = on_tables(records.holder)

    async def acquire(
        self,
        key: Key,
        owner: str,
        *,
        ttl: float = 15.0,
        steal: str | None = None,
        mark: str | None = None,
    ) -> Lease:
        acquire = records.AcquireCall(key, owner, ttl, steal, mark)
        return await self._run(lambda link: acquire(self._tables(link)))

    renew = on_tables(records.renew)
    release = on_link(records.release, whole=True)
    put_draft = on_link(records.put_draft)
    drafts = on_link(records.drafts, whole=True)

    # Blobs and snapshots

    async def put_blob(self, scope: Scope, data: bytes, *, sha256: str | None = None) -> BlobRef:
        name = blob_name(data, sha256)
        return await self._run(lambda link: records.put_blob(link, scope, data, name), within=SLOW)

    get_blob = on_link(records.get_blob, within=SLOW)
    blobs = on_link(records.blobs)
    save_snapshot = on_link(records.save_snapshot, whole=True)
    load_snapshot = on_link(records.load_snapshot)

    # Upkeep

    async def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        after = 0
        while ids := await self._run(partial(_logs_of, target=target, after=after)):
            for id in ids:
                found = await self._check_log(id)
                if found and repair:
                    found = await self._repair(id)
                for damage in found:
                    yield damage
            after = ids[-1]

    _check_log = on_tables(verification.check_log, within=SLOW)
    _repair = on_tables(verification.repair, within=SLOW)

    async def purge(self) -> Receipt:
        await self._sweep(None)
        for table in schema.TABLE_NAMES:
            await self._database.alone(f"VACUUM hf.{table}")
        purged = await self._texts.purge()
        return Receipt(remains=self._left_in_tables() if purged else self._left_behind())

    def info(self) -> StoreInfo:
        return StoreInfo(
            kind="postgres",
            location=self._database.options.location,
            durability="machine",
            schema=schema.VERSION,
            limits=LIMITS,
            apart=APART,
            lease_with_append=True,
        )

    async def aclose(self) -> None:
        await self._texts.aclose()
        await self._notices.aclose()
        await self._database.aclose()
        self._wakes.wake_all()


async def _logs_of(link: Link, target: Scope | Key | None, after: int) -> list[int]:
    """Return a page of the ids of the logs to verify, in ascending order."""
    names = [getattr(target, name, None) for name in ("tenant", "session", "thread")]
    found = await link.rows(
        f"SELECT id FROM hf.logs WHERE state = {LIVE} AND id > $1"
        " AND ($2::text IS NULL OR tenant = $2) AND ($3::text IS NULL OR session = $3)"
        " AND ($4::text IS NULL OR thread = $4) ORDER BY id LIMIT 1000",
        after,
        *names,
    )
    return [record["id"] for record in found]
