"""Events as stored in documents, and payloads split into chunks. Pure.

A batch is a sequence of events with consecutive numbers: `first`, their `ids`, and a record with
the other fields of each event. The data of a record is framed (see `frames`). After the format byte
`p`, the data is the stub of a payload that is stored separately, at the location `apart`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Raw

from ...log.codec import fingerprint
from ...log.events import Event, NewEvent
from .. import hash_chain, rules
from ..frames import packed
from ..rules import APART, Extension

Record = dict[str, Any]

_RISING = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

CHUNK = 1 << 20  # bytes of payload in one document
INLINE = 128 << 10  # bytes of payload that the batch of one append may contain itself
ENVELOPE = 256  # estimated bytes of an event without its data

_OPTIONAL = ("run", "actor", "cause")


class PayloadRef(NamedTuple):
    """The location of a separately stored payload: it is split over `pieces` chunks of one write,
    beginning at chunk `n`, and is at index `i` in each chunk."""

    write: str
    n: int
    i: int
    pieces: int

    @property
    def chunks(self) -> list[str]:
        return [chunk_id(self.write, self.n + k) for k in range(self.pieces)]


class Batch(NamedTuple):
    """Consecutive events of one log, as one document stores them."""

    first: int
    ids: list[str]
    events: list[Record]
    size: int
    """Its approximate size in bytes."""

    @classmethod
    def of(cls, first: int, ids: list[str], events: list[Record]) -> Batch:
        size = sum([len(record["data"]) + ENVELOPE for record in events])
        return cls(int(first), ids, events, size)

    @property
    def last(self) -> int:
        return self.first + len(self.ids) - 1


class FoundEvent(NamedTuple):
    """One stored event: its number, its id, and its record."""

    seq: int
    id: str
    record: Record


def chunk_id(write: str, n: int) -> str:
    """Return the `_id` of a chunk."""
    return f"{write}/{n}"


def batch_id(log: str, first: int) -> str:
    """Return the `_id` of a batch. The batch of a frozen tail is identified by its first number
    alone."""
    return f"{log}/{first}"


# Ids


def newest_of(ids: Iterable[str]) -> str:
    """Return the greatest time-ordered id (UUIDv7) among the ids. Returns an empty string if there
    is none."""
    return max((id for id in ids if _RISING.fullmatch(id)), default="")


def perhaps_known(ids: Iterable[str], newest: str) -> list[str]:
    """Return the ids that may be in a set whose greatest time-ordered id is `newest`: all ids
    except time-ordered ids that are greater."""
    return [id for id in ids if id <= newest or not _RISING.fullmatch(id)]


# Bytes


def cut(events: Iterable[NewEvent], write: str) -> tuple[list[list[bytes]], dict[str, PayloadRef]]:
    """Split the payloads of events into chunks. Returns the chunks, and the location of each
    payload."""
    chunks: list[list[bytes]] = []
    refs: dict[str, PayloadRef] = {}
    room = 0
    for event in events:
        data = packed(event.data)
        if len(data) > CHUNK:
            pieces = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
            refs[event.id] = PayloadRef(write, len(chunks), 0, len(pieces))
            chunks.extend([piece] for piece in pieces)
            room = 0
            continue
        if len(data) > room:
            chunks.append([])
            room = CHUNK
        refs[event.id] = PayloadRef(write, len(chunks) - 1, len(chunks[-1]), 1)
        chunks[-1].append(data)
        room -= len(data)
    return chunks, refs


def kept_apart(events: Sequence[NewEvent]) -> list[NewEvent]:
    """Return the events whose payloads are stored in chunks: the large ones, or all of them if the
    batch would be too large for the head document."""
    small = sum([len(event.data) for event in events if len(event.data) <= APART])
    if small > INLINE:
        return list(events)
    return [event for event in events if len(event.data) > APART]


# Events


def recorded(
    event: Event, hash: bytes, link: bytes | None, ref: PayloadRef | None = None
) -> Record:
    """Return the record of an event, without its number and id."""
    data = packed(event.data) if ref is None else b"p" + rules.apart(event)
    record: Record = {
        "kind": event.kind,
        "at": event.at,
        "hash": hash,
        "data": data,
    }
    if link is not None:
        record["link"] = link
    if event.v != 1:
        record["v"] = event.v
    for name in _OPTIONAL:
        if (value := getattr(event, name)) is not None:
            record[name] = value
    if ref is not None:
        record["apart"] = list(ref)
        record["size"] = len(event.data)
    return record


def batch_of(plan: Extension, refs: dict[str, PayloadRef]) -> Batch:
    """Combine events with dense numbers into one batch."""
    events = plan.fresh
    records = [
        recorded(event, hash, link, refs.get(event.id))
        for event, hash, link in zip(events, plan.hashes, plan.links, strict=True)
    ]
    return Batch.of(events[0].seq, [event.id for event in events], records)


def merged(batches: Sequence[Batch]) -> Batch:
    """Merge consecutive batches into one."""
    return Batch.of(
        batches[0].first,
        [id for batch in batches for id in batch.ids],
        [record for batch in batches for record in batch.events],
    )


def numbered(batch: Batch) -> list[FoundEvent]:
    """Return the events of a batch, each with its number."""
    return [
        FoundEvent(seq, id, record)
        for seq, (id, record) in enumerate(zip(batch.ids, batch.events, strict=False), batch.first)
    ]


def ref_of(record: Record) -> PayloadRef | None:
    """Return the location of a record's payload, if the payload is stored separately."""
    place = record.get("apart")
    return None if place is None else PayloadRef(*place)


def size_of(record: Record) -> int:
    """Return the number of bytes of data that must be loaded to read a record."""
    return int(record.get("size", len(record["data"])))


def stubbed(record: Record) -> bool:
    """Return whether `inline=False` returns a stub instead of the data."""
    return bool(record["data"][:1] == b"p" and record.get("size", 0) > APART)


def event_of(found: FoundEvent, data: bytes) -> Event:
    """Build an event from its stored record and its data."""
    record = found.record
    return Event(
        kind=record["kind"],
        data=Raw(data),
        id=found.id,
        v=record.get("v", 1),
        run=record.get("run"),
        actor=record.get("actor"),
        cause=record.get("cause"),
        seq=found.seq,
        at=int(record["at"]),
    )


def blank(found: FoundEvent, data: Raw, damaged: bool) -> Record:
    """Return the record of an event with other data. The location of a separately stored payload is
    kept until the payload is removed too."""
    event = event_of(found, bytes(data))
    link = hash_chain.erased(found.record.get("link"), found.record["hash"], damaged=damaged)
    record = recorded(event, fingerprint(event), link)
    if "apart" in found.record:
        record["apart"] = found.record["apart"]
    return record
