"""Storage of large payloads in separate chunks, which are written before any event refers to
them."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import LogDamaged
from ...log.events import Event, Key, Scope, new_id
from ..frames import FRAME, spoiled, unpacked
from ..rules import Extension
from .batches import insert_once, named
from .entry import Document
from .event_records import (
    Batch,
    FoundEvent,
    PayloadRef,
    batch_of,
    chunk_id,
    cut,
    event_of,
    kept_apart,
    ref_of,
    stubbed,
)
from .schema import MongoDatabase

SEND_BYTES = 8 << 20


class Spill:
    """The separately stored payloads of one call. They are written once, even if the call needs
    several attempts, and are removed afterwards if no event refers to them."""

    def __init__(self, db: MongoDatabase) -> None:
        self._db = db
        self._home: tuple[Scope, str] | None = None
        self._write = ""
        self._refs: dict[str, PayloadRef] = {}

    async def batch(self, key: Key, log: str, plan: Extension) -> Batch:
        """Write the large payloads of an append to chunks, and return its events as a batch."""
        apart = kept_apart(plan.fresh)
        if apart and (self._home != (key.scope, log) or any(e.id not in self._refs for e in apart)):
            await self.take_back()
            self._home, self._write = (key.scope, log), new_id()
            chunks, self._refs = cut(apart, self._write)
            await put_chunks(self._db, key.scope, log, self._write, chunks)
        return batch_of(plan, self._refs)

    async def take_back(self, *, but: Batch | None = None) -> None:
        """Remove the written chunks, except those that a batch refers to."""
        if self._home is None:
            return
        used = {ref for record in (but.events if but else ()) if (ref := ref_of(record))}
        idle = [ref for ref in self._refs.values() if ref not in used]
        if not used:
            await drop_chunks(self._db, self._home[0], self._write)
        elif idle:
            await blank_chunks(self._db, self._home[0], idle)
        self._home, self._refs = None, {}


async def put_chunks(
    db: MongoDatabase, scope: Scope, log: str | None, write: str, chunks: Sequence[Sequence[bytes]]
) -> None:
    """Store the chunks of one write, a few megabytes at a time."""
    at = await db.clock.now()
    some: list[Document] = []
    size = 0
    for n, parts in enumerate(chunks):
        doc = named(scope, _id=chunk_id(write, n), log=log, write=write, at=at, parts=list(parts))
        some.append(doc)
        size += sum(map(len, parts))
        if size >= SEND_BYTES:
            await insert_once(db.chunks, some)
            some, size = [], 0
    if some:
        await insert_once(db.chunks, some)


async def drop_chunks(db: MongoDatabase, scope: Scope, write: str) -> None:
    """Remove all chunks of a write."""
    below = {"$gte": f"{write}/", "$lt": f"{write}0"}  # "0" is the character after "/"
    await db.chunks.delete_many(named(scope, _id=below))


async def blank_chunks(db: MongoDatabase, scope: Scope, refs: Sequence[PayloadRef]) -> None:
    """Clear some payloads, but keep the other payloads in the same chunks."""
    for ref in refs:
        await db.chunks.update_many(
            named(scope, _id={"$in": ref.chunks}), {"$set": {f"parts.{ref.i}": b""}}
        )


async def used_writes(db: MongoDatabase, scope: Scope, log: str | None) -> set[str]:
    """Return the writes whose chunks the events of a log refer to, or without a log, those that the
    session's blobs refer to."""
    if log is None:
        return {doc["write"] async for doc in db.blobs.find(named(scope), {"write": 1})}
    used: set[str] = set()
    # The head is read before the batches, as in every read.
    head = await db.logs.find_one(named(scope, _id=log), {"tail.events.apart": 1})
    for batch in (head or {}).get("tail", ()):
        used |= {ref.write for event in batch["events"] if (ref := ref_of(event))}
    async for doc in db.batches.find(named(scope, log=log), {"events.apart": 1}, hint="last"):
        used |= {ref.write for event in doc["events"] if (ref := ref_of(event))}
    return used


async def fetched(
    db: MongoDatabase, scope: Scope, refs: Sequence[PayloadRef]
) -> dict[PayloadRef, bytes]:
    """Return the bytes of separately stored payloads. Missing payloads are empty."""
    ids = list(dict.fromkeys(id for ref in refs for id in ref.chunks))
    parts: dict[str, list[bytes]] = {}
    if ids:
        async for doc in db.chunks.find(named(scope, _id={"$in": ids}), {"parts": 1}, hint="_id_"):
            parts[doc["_id"]] = doc["parts"]

    def piece(id: str, i: int) -> bytes:
        held = parts.get(id, [])
        return held[i] if i < len(held) else b""

    return {ref: b"".join(piece(id, ref.i) for id in ref.chunks) for ref in refs}


async def events_of(
    db: MongoDatabase, key: Key, found: Sequence[FoundEvent], *, inline: bool
) -> tuple[list[Event], LogDamaged | None]:
    """Return the events up to the first damaged event, and the error for the damaged event."""
    refs = [
        ref
        for event in found
        if (ref := ref_of(event.record))
        and event.record["data"][:1] == b"p"
        and (inline or not stubbed(event.record))
    ]
    apart = await fetched(db, key.scope, refs) if refs else {}
    events: list[Event] = []
    for event in found:
        data = event.record["data"]
        if data[:1] == b"p":
            if not inline and stubbed(event.record):
                events.append(event_of(event, data[1:]))
                continue
            ref = ref_of(event.record)
            data = apart.get(ref, b"") if ref else b""
        whole = unpacked(data)
        if whole is None:
            return events, spoiled(key, event_of(event, data[FRAME:]))
        events.append(event_of(event, whole))
    return events, None
