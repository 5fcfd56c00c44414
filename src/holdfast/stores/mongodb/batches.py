"""Events in documents of their own: moved there from tails, looked up by id, read by number. A
batch is identified by its log and first number, and inserted once; a second insert is ignored. Only
erasures and deletes change a batch afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pymongo.errors import BulkWriteError, DuplicateKeyError

from ...log.events import Scope
from .entry import Document, MongoLogEntry, Segment, segments
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
    late copy finds the documents and changes nothing, erased events included.
    """
    whole = merged(entry.tail[: entry.frozen])
    await insert_once(db.batches, [batch_document(entry.scope, entry.log, whole)])


# By id


def known_in_tail(entry: MongoLogEntry, ids: Iterable[str]) -> dict[str, int]:
    """Return the numbers of the given ids that are in a tail."""
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
    """Return the numbers of the given ids that are in `batches`, including shared events."""
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
    """Return the numbers of the given ids that are in the log."""
    return {**await known_in_batches(db, entry, ids), **known_in_tail(entry, ids)}


# By number


async def found_events(
    db: MongoDatabase, entry: MongoLogEntry, after: int, upto: int, limit: int, reverse: bool
) -> list[FoundEvent]:
    """Return some events with after < seq <= upto, in order of number; large ones end the page
    early.

    The head document was read first. Events leave a tail only after they are in `batches`, so
    nothing is missed; events that are still in the tail are read from there alone, so nothing is
    returned twice.
    """
    parts: list[Segment | None] = [*segments(entry), None]
    found: list[FoundEvent] = []
    size = 0
    for part in reversed(parts) if reverse else parts:
        low, high = (entry.rolled, entry.row.head) if part is None else part[1:]
        low, high = max(low, after), min(high, upto)
        while low < high and len(found) < limit and size < PAGE_BYTES:
            if part is None:
                some = [batch for batch in entry.tail if batch.last > low and batch.first <= high]
                batches, more = some[::-1] if reverse else some, False
            else:
                batches, more = await _documents(
                    db, entry.scope, part.log, low, high, limit - len(found), reverse
                )
            for event in _between(batches, low, high, reverse):
                found.append(event)
                size += size_of(event.record)
                if len(found) >= limit or size >= PAGE_BYTES:
                    return found
            if not more:
                break
            low, high = (low, batches[-1].first - 1) if reverse else (batches[-1].last, high)
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
    db: MongoDatabase, scope: Scope, log: str, low: int, high: int, limit: int, reverse: bool
) -> tuple[list[Batch], bool]:
    """Return some batches of a log, from `low` up or from `high` down, and whether there may be
    more."""
    most = min(limit, PAGE_DOCUMENTS)
    if not reverse:
        docs = await _page(db, named(scope, log=log, last={"$gt": low}), 1, most)
        batches = [batch_in(doc) for doc in docs if doc["first"] <= high]
        return batches, bool(batches) and len(docs) == most and batches[-1].last < high
    docs = await _page(db, named(scope, log=log, last={"$gt": low, "$lte": high}), -1, most)
    if not docs or docs[0]["last"] < high:
        # `high` lies within a batch.
        docs = await _page(db, named(scope, log=log, last={"$gt": high}), 1, 1) + docs
    batches = [batch_in(doc) for doc in docs if doc["first"] <= high]
    return batches, bool(batches) and len(docs) >= most and batches[-1].first > low + 1


async def _page(db: MongoDatabase, where: Document, way: int, most: int) -> list[Document]:
    wanted = {"first": 1, "last": 1, "ids": 1, "events": 1}
    return await db.batches.find(
        where, wanted, sort=[("last", way)], limit=most, batch_size=most, hint="last"
    ).to_list()


def batch_in(doc: Document) -> Batch:
    """Decode the batch of a document."""
    return Batch.of(doc["first"], doc["ids"], doc["events"])
