"""Where the logs of each kind of store really are: taken out and put back past the store.

`taken` and `put` know a log by its incarnation, so that they reach a deleted one too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg
import msgspec
from msgspec import Raw
from msgspec.structs import replace
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

import holdfast
from holdfast import Row, Store
from holdfast.events import Event
from holdfast.log import catalog
from holdfast.stores.file.lines import LogLine, event_line, parse_header, parse_line
from holdfast.stores.frames import packed, unpacked
from holdfast.stores.memory import MemoryStore, _Log
from holdfast.stores.mongodb.batches import batch_document
from holdfast.stores.mongodb.entry import listing, stored
from holdfast.stores.mongodb.event_records import Batch, FoundEvent, event_of, recorded
from tests.servers import recycled
from tests.servers.faults import schema_of

from .tampering import Log, Record

COLUMNS = ("seq", "id", "kind", "v", "run", "actor", "cause", "at", "hash", "link", "data")


class Place(Protocol):
    """A store, and its bytes."""

    def opened(self) -> AbstractAsyncContextManager[Store]:
        """The store, as another process opens it."""
        ...

    async def taken(self, log: str) -> Log:
        """A log as its bytes tell it."""
        ...

    async def put(self, log: Log) -> None:
        """The bytes of a log; its row too, unless it is a deleted one."""
        ...


def of_columns(row: Row, records: Sequence[Any], after: int) -> Log:
    """A log of the columns of a database."""
    found = []
    for seq, id, kind, v, run, actor, cause, at, hash, link, data in records:
        text = unpacked(bytes(data))
        assert text is not None
        event = Event(
            seq=seq, id=id, kind=kind, v=v, run=run, actor=actor, cause=cause, at=at, data=Raw(text)
        )
        found.append(Record(event, bytes(hash), link))
    return Log(row, found, after)


def columns_of(record: Record) -> tuple[Any, ...]:
    e = record.event
    data = packed(e.data)
    return (e.seq, e.id, e.kind, e.v, e.run, e.actor, e.cause, e.at, record.hash, record.kept, data)


class InMemory:
    def __init__(self) -> None:
        self._store = MemoryStore()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Store, None]:
        yield self._store

    def _log(self, name: str) -> _Log:
        todo = list(self._store._logs.values())
        while todo[0].row.log != name:
            log = todo.pop(0)
            todo += [log.base] if log.base else []
        return todo[0]

    async def taken(self, log: str) -> Log:
        found = self._log(log)
        parts = zip(found.events, found.hashes, found.links, strict=True)
        return Log(found.row, [Record(*part) for part in parts], found.shared)

    async def put(self, log: Log) -> None:
        there = self._log(log.row.log)
        there.row = log.row
        there.events = [record.event for record in log.records]
        there.hashes = [record.hash for record in log.records]
        there.links = [record.kept for record in log.records]
        there.ids = {record.event.id: record.event.seq for record in log.records}


class InSqlite:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "store.db"

    def opened(self) -> AbstractAsyncContextManager[Store]:
        return holdfast.connect(f"sqlite:{self._path}?durability=process")

    async def taken(self, log: str) -> Log:
        with closing(sqlite3.connect(self._path)) as conn:
            id, shared, doc = conn.execute(
                "SELECT id, shared, doc FROM logs WHERE log = ?", (log,)
            ).fetchone()
            records = conn.execute(
                f"SELECT {', '.join(f'events.{name}' for name in COLUMNS[:-1])},"
                " coalesce(payloads.data, events.data) FROM events LEFT JOIN payloads"
                " ON payloads.log = events.log AND payloads.seq = events.seq"
                " WHERE events.log = ? ORDER BY events.seq",
                (id,),
            ).fetchall()
        return of_columns(msgspec.json.decode(doc, type=Row), records, shared)

    async def put(self, log: Log) -> None:
        with closing(sqlite3.connect(self._path)) as conn, conn:
            (id,) = conn.execute("SELECT id FROM logs WHERE log = ?", (log.row.log,)).fetchone()
            if log.row.tenant:
                doc = msgspec.json.encode(log.row)
                conn.execute("UPDATE logs SET doc = ? WHERE id = ?", (doc, id))
            conn.execute("DELETE FROM events WHERE log = ?", (id,))
            conn.executemany(
                f"INSERT INTO events (log, {', '.join(COLUMNS)}) VALUES (?{', ?' * len(COLUMNS)})",
                [(id, *columns_of(record)) for record in log.records],
            )


class InFiles:
    """With `index`, that of the folder is kept as it was; else it is gone when nobody has the
    folder open."""

    def __init__(self, folder: Path, *, index: bool) -> None:
        self._folder = folder / "store"
        self._index = index
        self._open = 0

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Store, None]:
        if not self._index and not self._open:
            for path in self._folder.glob("index.db*"):
                path.unlink()
        async with holdfast.connect(f"file:{self._folder}?durability=process") as store:
            self._open += 1
            yield store
            self._open -= 1

    def _path(self, log: str) -> Path:
        return self._folder / "logs" / log[-2:] / f"{log}.jsonl"

    async def taken(self, log: str) -> Log:
        first, *rest = self._path(log).read_bytes().splitlines(keepends=True)
        header = parse_header(first)
        lines = [line for text in rest if (line := parse_line(text)) is not None]
        assert header is not None
        assert len(lines) == len(rest)
        records = [
            Record(self._event(log, line), bytes.fromhex(line.sha256), line.kept) for line in lines
        ]
        row = Row(
            tenant=header.tenant or "",
            session=header.session or "",
            thread=header.thread or "",
            log=log,
            head=header.shared + len(records),
        )
        return Log(row, records, header.shared)

    def _event(self, log: str, line: LogLine) -> Event:
        event = line.event()
        if not line.apart:
            return event
        apart = self._path(log).with_suffix(".apart") / f"{line.seq}.json"
        return replace(event, data=Raw(apart.read_bytes()))

    async def put(self, log: Log) -> None:
        path = self._path(log.row.log)
        header, *old = path.read_bytes().splitlines(keepends=True)
        lines = [mended(record, text) for record, text in zip_longest(log.records, old) if record]
        path.write_bytes(header + b"".join(lines))


def mended(record: Record, old: bytes | None) -> bytes:
    """The line of a record in place of an old one. An append that ends at another number than it
    did is as if each of its events had been appended alone."""
    was = parse_line(old) if old else None
    same = was is not None and was.id == record.event.id
    return event_line(
        record.event,
        record.hash,
        record.kept,
        catalog.project(record.event),
        first=was.first if was and same else 0,
        last=was.last if was and same else 0,
    )


class InPostgres:
    def __init__(self, url: str) -> None:
        self.url = url
        self.schema = schema_of(url)

    def opened(self) -> AbstractAsyncContextManager[Store]:
        return holdfast.connect(self.url)

    @asynccontextmanager
    async def direct(self) -> AsyncGenerator[Any, None]:
        conn = await asyncpg.connect(self.url.partition("?")[0])
        try:
            async with conn.transaction():
                await conn.execute(f'SET LOCAL search_path TO "{self.schema}"')
                yield conn
        finally:
            await conn.close()

    async def taken(self, log: str) -> Log:
        async with self.direct() as conn:
            id, shared, doc = await conn.fetchrow(
                "SELECT id, shared, doc FROM logs WHERE log = $1", log
            )
            records = await conn.fetch(
                f"SELECT {', '.join(COLUMNS)} FROM events WHERE log = $1 ORDER BY seq", id
            )
        return of_columns(msgspec.json.decode(doc, type=Row), records, shared)

    async def put(self, log: Log) -> None:
        async with self.direct() as conn:
            id = await conn.fetchval("SELECT id FROM logs WHERE log = $1", log.row.log)
            if log.row.tenant:
                doc = msgspec.json.encode(log.row)
                change = "UPDATE logs SET version = version + 1, doc = $2 WHERE id = $1"
                await conn.execute(change, id, doc)
            await conn.execute("DELETE FROM events WHERE log = $1", id)
            values = ", ".join(f"${n}" for n in range(1, len(COLUMNS) + 2))
            await conn.executemany(
                f"INSERT INTO events (log, {', '.join(COLUMNS)}) VALUES ({values})",
                [(id, *columns_of(record)) for record in log.records],
            )


class InMongo:
    def __init__(self, url: str) -> None:
        self._url = url

    def opened(self) -> AbstractAsyncContextManager[Store]:
        return holdfast.connect(self._url)

    @asynccontextmanager
    async def raw(self) -> AsyncGenerator[AsyncDatabase[dict[str, Any]], None]:
        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(self._url)
        async with client:
            yield client[urlsplit(self._url).path.lstrip("/")]

    async def _parts(self, raw: Any, log: str) -> tuple[Any, list[Any], list[Any]]:
        """The head document of a log, what has rolled out of it, and its tail."""
        head = await raw.logs.find_one({"_id": log})
        tail = head.get("tail", [])
        before = {"log": log, "first": {"$lt": tail[0]["first"]}} if tail else {"log": log}
        return head, await raw.batches.find(before).sort("first", 1).to_list(), tail

    async def taken(self, log: str) -> Log:
        async with self.raw() as raw:
            head, batches, tail = await self._parts(raw, log)
        records = []
        for batch in [*batches, *tail]:
            for seq, (id, record) in enumerate(
                zip(batch["ids"], batch["events"], strict=True), int(batch["first"])
            ):
                text = unpacked(record["data"])
                assert text is not None
                event = event_of(FoundEvent(seq, id, record), text)
                records.append(Record(event, record["hash"], record.get("link")))
        row = msgspec.json.decode(head["doc"], type=Row) if head["state"] == 0 else None
        bare = Row(tenant="", session=head["session"], thread="", log=log)
        return Log(row or bare, records, head.get("shared", 0))

    async def put(self, log: Log) -> None:
        """Each document keeps its count of events; the last takes what is left."""
        async with self.raw() as raw:
            head, batches, tail = await self._parts(raw, log.row.log)
            left = list(log.records)
            sizes = [len(batch["ids"]) for batch in [*batches, *tail]]
            sizes[-1] = max(0, len(left) - sum(sizes[:-1]))
            some = []
            for size in sizes:
                some.append(left[:size])
                left = left[size:]
            made = [batch_of(records) for records in some if records]
            for batch in made[: len(batches)]:
                scope = holdfast.Scope(head["tenant"], head["session"])
                doc = batch_document(scope, log.row.log, batch)
                await raw.batches.replace_one({"_id": doc["_id"]}, doc)
            if log.row.tenant:
                change = {
                    "doc": msgspec.json.encode(log.row),
                    "head": log.row.head,
                    "tail": [stored(batch) for batch in made[len(batches) :]],
                    **listing(log.row),
                }
                update = {"$set": change, "$inc": {"version": 1}}
                await raw.logs.update_one({"_id": log.row.log}, update)


def batch_of(records: Sequence[Record]) -> Batch:
    ids = [record.event.id for record in records]
    events = [recorded(record.event, record.hash, record.kept) for record in records]
    return Batch.of(records[0].event.seq, ids, events)


FOLDERS: dict[str, Callable[[Path], Place]] = {
    "memory": lambda folder: InMemory(),
    "sqlite": InSqlite,
    "file": lambda folder: InFiles(folder, index=True),
    "file without index": lambda folder: InFiles(folder, index=False),
}
KINDS = [*FOLDERS, "postgres", "mongodb"]


@asynccontextmanager
async def place_of(kind: str, folder: Path) -> AsyncGenerator[Place, None]:
    if kind in FOLDERS:
        yield FOLDERS[kind](folder)
        return
    async with recycled.empty(kind) as url:
        yield InPostgres(url) if kind == "postgres" else InMongo(url)
