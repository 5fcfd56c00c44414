"""A store in a MongoDB database: a replica set, a sharded cluster, or a standalone server.

Each method runs functions of `log`, `history`, `records`, `queries`, `remove` and `upkeep`, and
retries while the server is briefly unavailable. A store has one client, regardless of the number of
sessions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from pymongo import AsyncMongoClient

from ...errors import StoreUnavailable
from ...log import catalog
from ...log.catalog import Parent, Project, Row
from ...log.codec import LIMITS
from ...log.events import Event, Key, NewEvent, Scope
from ...values.records import Receipt, Remains
from ...values.stream_items import CaughtUp
from ..base import BaseStore
from ..blobs import blob_name
from ..event_loop import OwnLoop
from ..notify import Wakes, follow
from ..paging import Fetch
from ..port import BlobRef, Damage, Lease, StoreInfo
from ..retry import patiently
from ..rules import APART, AppendRequest, Extension
from ..search import TextSearch
from . import history, queries, records, remove, upkeep
from .address import MongoAddress
from .entry import Document, MongoLogEntry
from .failure import passing, translated
from .heads import MongoHeads
from .jobs import on_database, on_heads
from .log import MongoAppend, PageReader, seqs_of
from .schema import VERSION, MongoDatabase, opened
from .text_index import MongoTextIndex
from .wake import ChangeWatch

T = TypeVar("T")

LARGE = 1 << 20  # bytes above which a call counts as long
LONG = 60.0  # seconds for one attempt of a long call


class MongoStore(BaseStore[MongoLogEntry]):
    """A store in a MongoDB database. Open it with `holdfast.connect("mongodb://…")`."""

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
        index = MongoTextIndex(db, self._ride)
        self._texts: TextSearch = TextSearch(self, index, index.changes)

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
        """Run `attempt` and return its result. The attempt is repeated while the server is
        unavailable, so it must recognise its own writes after a lost reply. If no reply arrives,
        the attempt is cancelled early enough to retry over another connection. A `long` attempt,
        with many steps or bytes, has more time."""
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

    async def _append(self, request: AppendRequest) -> Extension:
        append = MongoAppend(self._db, self._heads, self._project, request)
        done = await self._ride(append.run, long=request.size > LARGE)
        self._wakes.tell(request.key, done)
        return done

    def _fetch(self) -> Fetch:
        reader = PageReader(self._db, self._heads)
        return lambda key, bounds: self._ride(partial(reader.page, key, bounds), long=True)

    seqs = on_heads(seqs_of)
    locate = on_database(queries.locate)
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

    async def _begin_restore(self, key: Key, parent: Parent | None) -> MongoLogEntry:
        return await self._ride(lambda: history.begin_restore(self._db, self._heads, key, parent))

    async def _restore_some(self, restore: MongoLogEntry, events: list[Event]) -> MongoLogEntry:
        restoring = history.Restoring(self._db, self._project, restore, events)
        return await self._ride(restoring.run, long=True)

    async def _end_restore(self, key: Key, restore: MongoLogEntry) -> None:
        await self._ride(partial(history.end_restore, self._db, self._heads, restore), long=True)

    async def _discard(self, restore: MongoLogEntry, error: BaseException) -> None:
        async def discard() -> None:
            await self._ride(lambda: history.discard(self._db, restore))
            await self._sweep(restore.scope)

        if not isinstance(error, StoreUnavailable):  # otherwise a later sweep discards it
            await asyncio.shield(discard())

    def _restored(self, key: Key) -> None:
        self._wakes.wake(key)

    async def _erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> dict[str, int]:
        return await self._ride(
            lambda: history.erase(self._db, self._heads, self._project, key, seqs, reason, fence),
            long=True,
        )

    async def _hide(
        self, target: Scope | Key, fence: Lease | None, expected: int | None
    ) -> tuple[Counter[str], list[str]]:
        deleting = remove.Delete(self._db, self._heads, target, fence, expected)
        await self._ride(deleting.run, long=True)
        self._wakes.wake_all()
        return deleting.removed, [doc["_id"] for doc in deleting.hidden]

    async def _sweep(self, scope: Scope | None) -> None:
        await self._ride(lambda: remove.sweep(self._db, scope), long=True)

    _shared_still = on_database(remove.shared_still)

    def _left_behind(self) -> tuple[Remains, ...]:
        where = self._address.location
        files = Remains(
            where=f"{where}, the server's files",
            what="removed data in old pages and journals, until overwritten",
            remedy="run `compact` on each collection and member; backups have their own retention",
        )
        if not self._db.replicated:
            return (files,)
        oplog = Remains(
            where=f"{where}, oplog of each member",
            what="oplog entries with the removed data, until they are dropped",
            remedy="wait until the oplog has dropped them, or shrink it with `replSetResizeOplog`",
        )
        return (oplog, files)

    # The catalog

    async def row(self, key: Key) -> Row | None:
        entry = await self._ride(lambda: self._heads.read(key))
        return entry.row if entry else None

    rows = on_database(queries.rows)
    find = on_database(queries.find)
    pending = on_database(queries.pending)
    claim = on_database(records.claim)
    unclaim = on_database(records.unclaim)
    claims = on_database(records.claims)

    # Driving

    runnable = on_database(queries.runnable)
    due_tenants = on_database(queries.due_tenants)

    async def acquire(
        self,
        key: Key,
        owner: str,
        *,
        ttl: float = 15.0,
        steal: str | None = None,
        mark: str | None = None,
    ) -> Lease:
        leasing = records.Leasing(self._db, self._heads, mark)
        return await self._ride(lambda: leasing.acquire(key, owner, ttl, steal))

    async def renew(self, lease: Lease) -> Lease:
        leasing = records.Leasing(self._db, self._heads)
        return await self._ride(lambda: leasing.renew(lease))

    async def release(self, lease: Lease, *, head: int | None = None) -> None:
        leasing = records.Leasing(self._db, self._heads)
        await self._ride(lambda: leasing.release(lease, head))

    holder = on_heads(records.holder)
    put_draft = on_heads(records.put_draft)
    drafts = on_heads(records.drafts)

    # Blobs and snapshots

    async def put_blob(self, scope: Scope, data: bytes, *, sha256: str | None = None) -> BlobRef:
        name = blob_name(data, sha256)
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
        await self._texts.purge()
        return Receipt(removed=dict(removed), remains=self._left_behind())

    def info(self) -> StoreInfo:
        return StoreInfo(
            kind=self.kind,
            location=self._address.location,
            durability="machine",
            schema=VERSION,
            limits=LIMITS,
            apart=APART,
            lease_with_append=True,
        )

    async def aclose(self) -> None:
        await self._texts.aclose()
        await self._watch.aclose()
        await self._heads.aclose()
        if self._client is not None:
            await self._client.close()
        self._wakes.wake_all()
