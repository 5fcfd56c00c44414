"""Batches: documents with events that were moved out of a log's head document.

Events are copied into batches from the tail of the head document, found by id, and read by number.
A batch is identified by its log and its first number. It is inserted once; a second insert is
ignored. After that, only erasures and deletes change a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from pymongo.errors import BulkWriteError, DuplicateKeyError

from ...log.events import Scope
from .entry import TAIL_BATCHES, Document, MongoLogEntry, Segment, segments
from .event_records import Batch, FoundEvent, batch_id, merged, numbered, perhaps_known, size_of
from .failure import only_duplicates
from .schema import Collection, MongoDatabase

PAGE_BYTES = 4 << 20
PAGE_DOCUMENTS = 16


def named(scope: Scope, **more: Any) -> Document:
    """Return a filter for one session. All filters begin with tenant and session, as sharding
    requires."""
    return {"tenant": scope.tenant, "session": scope.session, **more}


async def insert_once(collection: Collection, documents: Sequence[Document]) -> None:
    """Insert documents, ignoring those that already exist."""
    try:
        if len(documents) == 1:
            await collection.insert_one(documents[0])
        else:
            await collection.insert_many(documents, ordered=False)
    except DuplicateKeyError:
        pass
    except BulkWriteError as error:
        if not only_duplicates(error):
            raise


def batch_document(scope: Scope, log: str, batch: Batch) -> Document:
    """Return the document of a batch, as stored in `batches`."""
    return named(
        scope,
        _id=batch_id(log, batch.first),
        log=log,
        first=batch.first,
        last=batch.last,
        ids=batch.ids,
        events=batch.events,
    )


async def roll(db: MongoDatabase, entry: MongoLogEntry) -> None:
    """Copy the frozen part of a tail into `batches`.

    The frozen part does not change until it is dropped, so all processes copy the same content. A
    late copy finds the existing documents, including those with erased events, and changes nothing.
    """
    whole = merged(entry.tail[: entry.frozen])
    await insert_once(db.batches, [batch_document(entry.scope, entry.log, whole)])


# By id


def known_in_tail(entry: MongoLogEntry, ids: Iterable[str]) -> dict[str, int]:
    """Return the event number of each id that is found in the log's tail."""
    wanted = set(ids)
    return {
        id: seq
        for batch in entry.tail
        for seq, id in enumerate(batch.ids, batch.first)
        if id in wanted
    }


async def known_in_batches(
    db: MongoDatabase, entry: MongoLogEntry, ids: Sequence[str]
) -> dict[str, int]:
    """Return the event number of each id that is found in `batches`, including shared events."""
    upto = {part.log: part.upto for part in segments(entry) if part.after < part.upto}
    wanted = set(perhaps_known(ids, entry.newest)) if upto else set()
    if not wanted:
        return {}
    where = named(entry.scope, log={"$in": list(upto)}, ids={"$in": list(wanted)})
    found = db.batches.find(where, {"log": 1, "first": 1, "ids": 1}, hint="ids")
    return {
        id: seq
        for doc in await found.to_list()
        for seq, id in enumerate(doc["ids"], int(doc["first"]))
        if id in wanted and seq <= upto[doc["log"]]
    }


async def known_ids(db: MongoDatabase, entry: MongoLogEntry, ids: Sequence[str]) -> dict[str, int]:
    """Return the event number of each id that is found in the log."""
    return {**await known_in_batches(db, entry, ids), **known_in_tail(entry, ids)}


# By number


async def found_events(
    db: MongoDatabase,
    entry: MongoLogEntry,
    after: int,
    upto: int,
    limit: int,
    reverse: bool,
    near: Sequence[Document] | None = None,
) -> list[FoundEvent]:
    """Return at most `limit` events with after < seq <= upto, in order of number; large events end
    the page early. Numbers are dense, so the limit defines a range, and only that range is fetched.
    `near` has the documents of `newest_documents`, if they were read with the head.

    The caller has read the head document first. Events leave a tail only after they are in
    `batches`, so nothing is missed; events that are still in the tail are read from there alone, so
    nothing is returned twice.
    """
    if reverse:
        after = max(after, upto - limit)
    else:
        upto = min(upto, after + limit)
    parts: list[Segment | None] = [*segments(entry), None]
    found: list[FoundEvent] = []
    size = 0
    for part in reversed(parts) if reverse else parts:
        low, high = (entry.rolled, entry.row.head) if part is None else part[1:]
        low, high = max(low, after), min(high, upto)
        while low < high and len(found) < limit and size < PAGE_BYTES:
            if part is None:
                some = [batch for batch in entry.tail if batch.last > low and batch.first <= high]
                batches, bound = some[::-1] if reverse else some, None
            elif near is not None and part.log == entry.log:
                batches, bound = _batches(near, high), None
            else:
                batches, bound = await _documents(db, entry, part.log, low, high, reverse)
            for event in _between(batches, low, high, reverse):
                found.append(event)
                size += size_of(event.record)
                if len(found) >= limit or size >= PAGE_BYTES:
                    return found
            if bound is None:
                break
            low, high = (low, bound) if reverse else (bound, high)
        reached = found[-1].seq if found else None
        if low < high and reached != (low + 1 if reverse else high):
            break  # a gap here must not be skipped
    return found


def _between(batches: Iterable[Batch], low: int, high: int, reverse: bool) -> Iterable[FoundEvent]:
    for batch in batches:
        events = numbered(batch)
        for event in reversed(events) if reverse else events:
            if low < event.seq <= high:
                yield event


async def _documents(
    db: MongoDatabase, entry: MongoLogEntry, log: str, low: int, high: int, reverse: bool
) -> tuple[list[Batch], int | None]:
    """Return a page of a log's batches, in ascending order after number `low` or in descending
    order from number `high`, and the number at which the next page begins, or None at the end."""
    of_log = named(entry.scope, log=log)
    if reverse:
        ends = log == entry.log and high == entry.rolled
        docs, bound = await _last_documents(db, of_log, low, high, ends=ends)
    else:
        docs, bound = await _first_documents(db, of_log, low, high)
    return _batches(docs, high), bound


def _batches(docs: Iterable[Document], high: int) -> list[Batch]:
    return [batch_in(doc) for doc in docs if doc["first"] <= high]


async def _first_documents(
    db: MongoDatabase, of_log: Document, low: int, high: int
) -> tuple[list[Document], int | None]:
    """Return a page of a log's batch documents in ascending order after number `low`, and the
    number after which the next page begins, or None at the end."""
    most = min(PAGE_DOCUMENTS, (high - low) // TAIL_BATCHES + 2)
    docs = await _page(db, {**of_log, "last": {"$gt": low}}, 1, most, low, high)
    more = len(docs) == most and docs[-1]["last"] < high
    return docs, docs[-1]["last"] if more else None


async def _last_documents(
    db: MongoDatabase, of_log: Document, low: int, high: int, *, ends: bool
) -> tuple[list[Document], int | None]:
    """Return a page of a log's batch documents in descending order from number `high`, and the
    number at which the next page begins, or None at the end. Unless `ends` says that a document
    ends at `high`, the document that contains `high` is fetched at the same time."""
    within = {**of_log, "last": {"$gt": low, "$lte": high}}
    around = {**of_log, "last": {"$gt": high}}
    pages = [_page(db, within, -1, PAGE_DOCUMENTS, low, high)]
    if not ends:
        pages.append(_page(db, around, 1, 1, low, high))
    docs, *rest = await asyncio.gather(*pages)
    more = len(docs) == PAGE_DOCUMENTS and docs[-1]["first"] > low + 1
    return [*(rest[0] if rest else ()), *docs], docs[-1]["first"] - 1 if more else None


async def _page(
    db: MongoDatabase, where: Document, way: int, most: int, low: int, high: int
) -> list[Document]:
    """Return at most `most` documents. Each contains only its events after number `low`, and at
    most `high - low` events."""
    wanted = _from(low + 1, high - low)
    return await db.batches.find(
        where, wanted, sort=[("last", way)], limit=most, batch_size=most, hint="last"
    ).to_list()


def _from(start: int | Document, count: int) -> Document:
    """Return the projection that limits a document to at most `count` events from number `start`
    on."""
    skip = {"$max": [0, {"$subtract": [start, "$first"]}]}
    parts = {name: {"$slice": [f"${name}", skip, count]} for name in ("ids", "events")}
    return {**parts, "first": {"$max": ["$first", start]}, "last": 1}


def newest_documents(scope: Scope, count: int) -> list[Document]:
    """Return the aggregation stages that add a field `near` to a head: the log's documents with its
    newest `count` events, newest first."""
    after = {"$subtract": ["$head", count]}
    newest = {"$and": [{"$eq": ["$log", "$$log"]}, {"$gt": ["$last", "$$after"]}]}
    steps = [
        {"$match": named(scope, **{"$expr": newest})},
        {"$sort": {"last": -1}},
        {"$project": _from({"$add": ["$$after", 1]}, count)},
    ]
    names = {"log": "$_id", "after": after}
    return [{"$lookup": {"from": "batches", "let": names, "pipeline": steps, "as": "near"}}]


def batch_in(doc: Document) -> Batch:
    """Decode the batch of a document."""
    return Batch.of(doc["first"], doc["ids"], doc["events"])
