"""The collections, their indexes and versions, and the preparation of a database.

Every document except a claim has `tenant` and `session`, and every query about one session names
both, so that all collections can be sharded by them. Each query names its index explicitly, so that
its query plan does not depend on the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pymongo import ASCENDING, IndexModel, ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from ...errors import InvalidValue, StoreTooNew, StoreUnavailable
from ..retry import patiently
from .address import MongoAddress
from .clock import Clock, GivenClock, ServerClock
from .entry import LIVE, Document
from .failure import passing, translated

Collection = AsyncCollection[Document]

VERSION = 1
# Increased for each new index that older programs can work without, so VERSION stays the same.
INDEX_EDITION = 1
OLDEST_WIRE = 17  # the wire version of MongoDB 6.0
WRITE_MS = 10_000  # ms after which a write without a majority counts as a lost reply

_MAIN = {"state": LIVE, "thread": "main"}


def _index(name: str, *fields: str, **options: Any) -> IndexModel:
    return IndexModel([(field, ASCENDING) for field in fields], name=name, **options)


def _some(name: str, *fields: str, where: Document, **options: Any) -> IndexModel:
    return _index(name, *fields, partialFilterExpression=where, **options)


INDEXES: dict[str, list[IndexModel]] = {
    "logs": [
        _some("key", "tenant", "session", "thread", where={"state": LIVE}, unique=True),
        # Contains all logs, and no update changes it: for sharding, and to find all threads.
        _index("session", "tenant", "session"),
        _some("threads", "tenant", "session", "active", "_id", where={"state": LIVE}),
        _some("active", "tenant", "active", "_id", where=_MAIN),
        _some("created", "tenant", "created", "_id", where=_MAIN),
        *[
            _some(name, "tenant", name, "active", "_id", where={**_MAIN, name: {"$exists": True}})
            for name in ("user", "workspace", "agent")
        ],
        _some("terms", "tenant", "terms", "active", "_id", where=_MAIN),
        _some("stale", "tenant", "stale_at", "_id", where={"stale_at": {"$exists": True}}),
        _some("wake", "tenant", "agent", "wake", "_id", where={"wake": {"$exists": True}}),
        _some("waits", "tenant", "waits", "waits_to", "_id", where={"waits": {"$exists": True}}),
        _some(
            "assignees",
            "tenant",
            "assignees",
            "waits",
            "waits_to",
            "_id",
            where={"assignees": {"$exists": True}},
        ),
        _some("base", "tenant", "session", "base", where={"base": {"$exists": True}}),
        _some("hidden", "tenant", "session", "state", where={"state": {"$gt": LIVE}}),
        _some("tail_ids", "tenant", "tail.ids", where={"state": LIVE}),
    ],
    "batches": [
        _index("last", "tenant", "session", "log", "last"),
        _index("ids", "log", "ids"),
        _index("tenant_ids", "tenant", "ids"),
    ],
    "chunks": [_index("log", "tenant", "session", "log")],
    "drafts": [_index("log", "tenant", "session", "log", "message")],
    "snapshots": [_index("log", "tenant", "session", "log")],
    "blobs": [_index("session", "tenant", "session", "sha256")],
    "claims": [_index("session", "tenant", "session")],
}


@dataclass(frozen=True)
class MongoDatabase:
    """The clock and the collections of a database. Each collection has the read and write concerns
    that the store's guarantees need."""

    logs: Collection
    batches: Collection
    chunks: Collection
    drafts: Collection
    snapshots: Collection
    blobs: Collection
    claims: Collection
    clock: Clock
    replicated: bool
    """Whether the server has an oplog, and thus majorities and change streams."""

    @classmethod
    def of(cls, place: AsyncDatabase[Document], clock: Clock, *, replicated: bool) -> MongoDatabase:
        """Configure all collections: reads and writes go to the primary, a read returns only data
        that cannot be rolled back, and a write is in the journals of a majority before it is
        acknowledged."""
        write = WriteConcern(w=1, j=True)
        if replicated:
            write = WriteConcern(w="majority", j=True, wtimeout=WRITE_MS)
        safe = place.with_options(
            read_preference=ReadPreference.PRIMARY,
            write_concern=write,
            read_concern=ReadConcern("majority" if replicated else "local"),
        )
        return cls(**{name: safe[name] for name in INDEXES}, clock=clock, replicated=replicated)

    @property
    def place(self) -> AsyncDatabase[Document]:
        return self.logs.database


def check_server(hello: Document) -> bool:
    """Return whether the server is replicated (or a router to such servers). Rejects a server that
    is too old, or whose replica set is not initiated."""
    if hello.get("maxWireVersion", 0) < OLDEST_WIRE:
        raise InvalidValue(
            field="url", problem="refers to a server older than MongoDB 6.0", remedy="upgrade it"
        )
    if hello.get("isreplicaset"):
        raise StoreUnavailable(
            problem="the server's replica set is not initiated: "
            "run rs.initiate(), then open the store again"
        )
    return "setName" in hello or hello.get("msg") == "isdbgrid"


async def opened(place: AsyncDatabase[Document], clock: Callable[[], int] | None) -> MongoDatabase:
    """Check the server, prepare the database, and return its collections with a clock."""

    async def hello() -> Document:
        answer: Document = await place.client.admin.command("hello")
        return answer

    replicated = check_server(await hello())
    time: Clock = ServerClock(hello) if clock is None else GivenClock(clock)
    db = MongoDatabase.of(place, time, replicated=replicated)
    await prepare(db)
    return db


async def prepare(db: MongoDatabase) -> None:
    """Create the collections and indexes if necessary, and add indexes that an older program did
    not create. Safe if many processes open the database at the same time.

    The mark that the database belongs to Holdfast is set before the first index, at version 0, so
    that another process can complete an interrupted preparation.
    """
    meta = db.logs.database["meta"].with_options(
        read_concern=db.logs.read_concern, write_concern=db.logs.write_concern
    )
    mark = await meta.find_one({"_id": "holdfast"})
    if mark is None:
        foreign = set(await db.place.list_collection_names()) & set(INDEXES)
        made = await meta.update_one(
            {"_id": "holdfast"}, {"$setOnInsert": {"version": 0}}, upsert=True
        )
        if made.upserted_id is not None and foreign:
            await meta.delete_one({"_id": "holdfast"})
            raise InvalidValue(
                field="url",
                problem=f"database {db.place.name!r} has collections of another program",
                remedy="use another database",
            )
        mark = {"version": 0}
    version = mark["version"]
    if version > VERSION:
        raise StoreTooNew(
            problem=f"database {db.place.name!r} has schema version {version}, "
            f"but this release supports only version {VERSION}",
            found=version,
            known=VERSION,
        )
    if version < VERSION or mark.get("indexes", 0) < INDEX_EDITION:
        for name, indexes in INDEXES.items():
            await db.place[name].create_indexes(indexes)
        done = {"version": VERSION, "indexes": INDEX_EDITION}
        await meta.update_one({"_id": "holdfast"}, {"$max": done})


async def schema_state(url: str) -> tuple[int, int]:
    """Return the version of the collections at `url` (0 if there are none), and the version that
    this program supports. Changes nothing."""
    address = MongoAddress.of(url)
    client = await address.connect()
    meta = client[address.database]["meta"]
    try:
        with translated():
            mark = await patiently(
                lambda: meta.find_one({"_id": "holdfast"}), passing, patience=address.patience
            )
    finally:
        await client.close()
    return (mark["version"] if mark else 0), VERSION
