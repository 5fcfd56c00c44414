"""A store in a MongoDB database: a replica set, a sharded cluster, or a standalone server.

Each method runs functions of `log`, `history`, `records`, `queries`, `remove` and `upkeep`, and
retries while the server is briefly unavailable. A store has one client, whatever the number of
sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TypeVar

from pymongo import AsyncMongoClient

from ...errors import StoreError, StoreUnavailable
from ...log import catalog
from ...log.catalog import Parent, Project, Row
from ...log.codec import LIMITS
from ...log.events import Appended, Event, Key, NewEvent, Scope
from ...values.records import Receipt, Remains
from ...values.stream_items import CaughtUp
from .. import rules
from ..checked import CheckedStore
from ..event_loop import OwnLoop
from ..notify import Wakes, follow
from ..paging import batches
from ..port import BlobRef, Damage, Lease, StoreInfo
from ..retry import patiently
from ..rules import APART
from . import history, queries, records, remove, upkeep
from .address import MongoAddress
from .entry import Document, MongoLogEntry
from .failure import passing, translated
from .heads import MongoHeads
from .log import Guards, MongoAppend, ReadBounds, read_page
from .methods import on_database, on_heads
from .schema import VERSION, MongoDatabase, opened
from .wake import ChangeWatch

T = TypeVar("T")

LARGE = 1 << 20  # bytes above which a call counts as long
LONG = 60.0  # seconds for one attempt of a long call


class MongoStore(CheckedStore):
    """Sessions in a MongoDB database."""

    kind = "mongodb"

    def __init__(
        self,
        db: MongoDatabase,
        address: MongoAddress,
        client: AsyncMongoClient[Document] | None,
        project: Project,
    ) -> None:
        self._db, self._own = db, OwnLoop("the store")
        self._address = address
        self._client = client
        self._project = project
        self._heads = MongoHeads(db, patience=address.patience)
        self._wakes = Wakes()
        self._watch = ChangeWatch(db, self._wakes)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        client: AsyncMongoClient[Document] | None = None,
        project: Project = catalog.project,
        clock: Callable[[], int] | None = None,
    ) -> MongoStore:
        """Open the database at `url`, and create its collections and indexes if necessary; safe for
        many processes at once. If the caller passes a `client`, it is used and never closed.
        Without `clock`, the server's clock is used."""
        address = MongoAddress.of(url)
        own = await address.connect() if client is None else None
        used = own if client is None else client
        assert used is not None
        try:
            with translated():
                db = await patiently(
                    lambda: opened(used[address.database], clock),
                    passing,
                    patience=address.patience,
                    what=address.location,
                )
        except BaseException:
            if own is not None:
                await own.close()
            raise
        return cls(db, address, own, project)

    async def _ride(self, attempt: Callable[[], Awaitable[T]], *, long: bool = False) -> T:
        """The result of `attempt`, repeated while the server is unavailable; an attempt must
        recognise its own writes after a lost reply. An attempt without a reply is given up early
        enough for another one, over another connection; a `long` one, with many steps or bytes,
        later."""
        self._own.check()
        limit = LONG if long else max(1.0, self._address.patience / 2)

        async def limited() -> T:
            async with asyncio.timeout(limit):
                return await attempt()

        with translated():
            return await patiently(
                limited, passing, patience=self._address.patience, what=self._address.location
            )

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
        guards = Guards(expected, fence, log, create)
        appending = MongoAppend(self._db, self._heads, self._project, key, events, guards)
        large = sum([len(event.data) for event in events]) > LARGE
        done = await self._ride(appending.run, long=large)
        self._wakes.tell(key, appending.written)
        return done

    async def read(
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
        bounds = ReadBounds(after, before, limit, reverse, inline)
        entry: MongoLogEntry | None = None
        while True:
            page = await self._ride(
                partial(read_page, self._db, self._heads, key, bounds, log, entry), long=True
            )
            entry, log = page.entry, page.entry.log
            for event in page.events:
                yield event
            if page.damage is not None:
                raise page.damage
            if not page.events:
                return
            bounds = bounds.behind(page.events)
            if bounds.limit == 0 or (reverse and bounds.before == after + 1):
                return

    link = on_heads(history.link_of)

    async def follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        self._own.check()
        async with (
            self._watch.following(key),
            aclosing(follow(self, self._wakes, key, after, log)) as items,
        ):
            async for item in items:
                yield item

    async def fork(self, key: Key, thread: str, *, at: int, first: NewEvent) -> None:
        forking = history.Fork(self._db, self._heads, self._project, key, thread, at, first)
        await self._ride(forking.run)

    async def restore(
        self, key: Key, events: AsyncIterable[Event], *, parent: Parent | None = None
    ) -> None:
        await self._sweep(key.scope)  # discards what a crashed restore left behind
        entry = await self._ride(lambda: history.begin_restore(self._db, self._heads, key, parent))
        try:
            async for some in batches(events):
                entry = await self._restore_some(entry, some)
            await self._ride(partial(history.end_restore, self._db, self._heads, entry), long=True)
        except StoreUnavailable:
            raise  # a later call discards the rest of it
        except BaseException:
            await asyncio.shield(self._discard(entry))
            raise
        self._wakes.wake(key)

    async def _restore_some(self, entry: MongoLogEntry, events: list[Event]) -> MongoLogEntry:
        restoring = history.Restoring(self._db, self._project, entry, events)
        return await self._ride(restoring.run, long=True)

    async def _discard(self, entry: MongoLogEntry) -> None:
        """Abandon a restore, for the reason that its caller gets. An unavailable server does not
        hide that reason; a later call completes the cleanup."""
        with suppress(StoreError):
            await self._ride(lambda: history.discard(self._db, entry))
            await self._sweep(entry.scope)

    async def erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> Receipt:
        removed = await self._ride(
            lambda: history.erase(self._db, self._heads, self._project, key, seqs, reason, fence),
            long=True,
        )
        return Receipt(removed=removed, remains=self._left_behind())

    async def delete(self, target: Scope | Key, *, fence: Lease | None = None) -> Receipt:
        deleting = remove.Delete(self._db, self._heads, target, fence)
        await self._ride(deleting.run, long=True)
        self._wakes.wake_all()
        await self._sweep(deleting.scope)
        deleted = [doc["_id"] for doc in deleting.hidden]
        shared = await self._ride(lambda: remove.shared_still(self._db, deleting.scope, deleted))
        counted = {sort: deleting.removed[sort] for sort in rules.SORTS}
        return Receipt(removed=counted, remains=(*shared, *self._left_behind()))

    async def _sweep(self, scope: Scope | None) -> None:
        await self._ride(lambda: remove.sweep(self._db, scope), long=True)

    def _left_behind(self) -> tuple[Remains, ...]:
        where = self._address.location
        files = Remains(
            where=f"{where}, the server's files",
            what="old pages and journals, until the server overwrites them",
            remedy="run `compact` on each collection and member; backups have their own retention",
        )
        if not self._db.replicated:
            return (files,)
        oplog = Remains(
            where=f"{where}, oplog of each member",
            what="the original changes, until newer ones displace them",
            remedy="wait for the oplog's window, or shrink it with `replSetResizeOplog`",
        )
        return (oplog, files)

    # The catalog

    async def row(self, key: Key) -> Row | None:
        entry = await self._ride(lambda: self._heads.read(key))
        return entry.row if entry else None

    find = on_database(queries.find)
    pending = on_database(queries.pending)
    claim = on_database(records.claim)
    unclaim = on_database(records.unclaim)
    claims = on_database(records.claims)

    # Driving

    runnable = on_database(queries.runnable)

    async def acquire(
        self, key: Key, owner: str, *, ttl: float = 15.0, steal: str | None = None
    ) -> Lease:
        leasing = records.Leasing(self._db, self._heads)
        return await self._ride(lambda: leasing.acquire(key, owner, ttl, steal))

    async def renew(self, lease: Lease) -> Lease:
        leasing = records.Leasing(self._db, self._heads)
        return await self._ride(lambda: leasing.renew(lease))

    async def release(self, lease: Lease, *, head: int | None = None) -> None:
        leasing = records.Leasing(self._db, self._heads)
        await self._ride(lambda: leasing.release(lease, head))

    put_draft = on_heads(records.put_draft)
    drafts = on_heads(records.drafts)

    # Blobs and snapshots

    async def put_blob(self, scope: Scope, data: bytes, *, sha256: str | None = None) -> BlobRef:
        name = rules.blob_name(data, sha256)
        return await self._ride(lambda: records.put_blob(self._db, scope, data, name), long=True)

    get_blob = on_database(records.get_blob, long=True)
    blobs = on_database(records.blobs)
    save_snapshot = on_heads(records.save_snapshot)
    load_snapshot = on_heads(records.load_snapshot)

    # Upkeep

    async def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        for scope, log in await self._ride(lambda: upkeep.logs_of(self._db, target), long=True):
            about = (self._db, self._heads, self._project, scope, log)
            found = await self._ride(partial(upkeep.check_log, *about), long=True)
            if found and repair:
                found = await self._ride(partial(upkeep.repair, *about), long=True)
            for damage in found:
                yield damage

    async def purge(self) -> Receipt:
        await self._sweep(None)
        removed = await self._ride(lambda: upkeep.drop_orphans(self._db), long=True)
        return Receipt(removed=dict(removed), remains=self._left_behind())

    def info(self) -> StoreInfo:
        return StoreInfo(
            kind=self.kind,
            location=self._address.location,
            durability="machine",
            schema=VERSION,
            limits=LIMITS,
            apart=APART,
        )

    async def aclose(self) -> None:
        await self._watch.aclose()
        await self._heads.aclose()
        if self._client is not None:
            await self._client.close()
        self._wakes.wake_all()
