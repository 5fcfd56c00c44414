"""The head document of a log: its fields, and the updates that change it. Pure.

The document contains the log's key, state and version, its lease, the whole `Row` as JSON in `doc`
(so that the order of keys, NUL and large numbers are preserved), the fields that lists search by,
and the newest batches in `tail`. Every change compares and increments `version`, so that a change
decided on an outdated copy is never applied.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import msgspec

from ...log import catalog
from ...log.catalog import Row
from ...log.events import Key, Scope
from ..rules import Extension, LeaseState
from .event_records import Batch, newest_of

Document = dict[str, Any]

# The states of a log.
LIVE, RESTORING, DEAD, FORKING = 0, 1, 2, 3

TAIL_BATCHES = 8  # from this size on, a tail is frozen, to be moved into `batches`
TAIL_BYTES = 256 << 10
TAIL_MOST = 2 * TAIL_BATCHES  # at this size, appends wait until the frozen part is moved

_COLUMNS = ("user", "workspace", "agent", "phase", "run", "created", "active", "stale_at", "wake")
_LISTED = (*_COLUMNS, "terms", "waits", "waits_to", "whats", "assignees")

_row_decoder = msgspec.json.Decoder(Row)
_encode = msgspec.json.Encoder().encode


class Segment(NamedTuple):
    """A range of event numbers, after `after` up to `upto`, whose events are stored in the log
    `log`."""

    log: str
    after: int
    upto: int


class MongoLogEntry(NamedTuple):
    """A log as it is stored in its head document."""

    log: str
    version: int
    row: Row
    lease: LeaseState = LeaseState()
    base: str | None = None
    shared: int = 0
    chain: tuple[Segment, ...] = ()
    """The logs that store the events up to `shared`, oldest first; all these are in `batches`."""
    tail: tuple[Batch, ...] = ()
    frozen: int = 0
    """How many batches of the tail are frozen and being moved into `batches`."""
    newest: str = ""
    """The greatest time-ordered id that is no longer in a tail."""
    drafts: bool = False
    """Whether the log may have drafts."""
    erasures: int = 0
    """How often the row was rebuilt because its events changed."""
    listed: Document = {}
    state: int = LIVE

    @property
    def key(self) -> Key:
        return self.row.key

    @property
    def scope(self) -> Scope:
        return self.row.scope

    @property
    def rolled(self) -> int:
        """The last event number in `batches`. All earlier numbers are in `batches` too."""
        return self.tail[0].first - 1 if self.tail else self.row.head

    @property
    def size(self) -> int:
        return sum([batch.size for batch in self.tail])


# Reading a document


def decoded(doc: Document) -> MongoLogEntry:
    """Decode the log of a head document."""
    return MongoLogEntry(
        log=doc["_id"],
        version=doc["version"],
        row=row_of(doc),
        lease=lease_of(doc),
        base=doc.get("base"),
        shared=doc.get("shared", 0),
        chain=tuple(Segment(*part) for part in doc.get("chain", ())),
        tail=tuple(Batch.of(b["first"], b["ids"], b["events"]) for b in doc.get("tail", ())),
        frozen=doc.get("frozen", 0),
        newest=doc.get("newest", ""),
        drafts=doc.get("drafts", False),
        erasures=doc.get("erasures", 0),
        listed={name: doc[name] for name in _LISTED if name in doc},
        state=doc["state"],
    )


def lease_of(doc: Document) -> LeaseState:
    """Decode the lease of a log. Fields that an older program did not write are empty."""
    numbers = {name: int(doc.get(name, 0)) for name in ("token", "since", "until", "renewed")}
    return LeaseState(owner=doc.get("owner"), mark=doc.get("by"), **numbers)


def row_of(doc: Document) -> Row:
    """Decode the row of a log; if its JSON is damaged, build a row from the other fields."""
    try:
        row = _row_decoder.decode(doc["doc"])
        if row.head == doc["head"]:
            return row
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, TypeError):
        pass
    return Row(
        tenant=doc["tenant"],
        session=doc["session"],
        thread=doc.get("thread", ""),
        log=doc["_id"],
        head=doc["head"],
        created=int(doc.get("created", 0)),
    )


# Writing a document


def encoded(entry: MongoLogEntry) -> Document:
    """Encode the whole head document of a new log."""
    row = entry.row
    doc: Document = {
        "_id": entry.log,
        "tenant": row.tenant,
        "session": row.session,
        "thread": row.thread,
        "state": entry.state,
        "version": entry.version,
        "head": row.head,
        "shared": entry.shared,
        **lease_fields(entry.lease),
        "doc": _encode(row),
        "tail": [stored(batch) for batch in entry.tail],
        "frozen": entry.frozen,
        "newest": entry.newest,
    }
    if entry.base is not None:
        doc["base"] = entry.base
        doc["chain"] = [list(part) for part in entry.chain]
    if entry.state != RESTORING:
        doc.update(listing(row))
    return doc


def lease_fields(lease: LeaseState) -> Document:
    """Encode a lease. The mark is stored in the field `by`. An older program stores its own id in
    this field for each acquisition, so it overwrites the mark when it acquires the lease."""
    fields = msgspec.structs.asdict(lease)
    return {("by" if name == "mark" else name): value for name, value in fields.items()}


def stored(batch: Batch) -> Document:
    """Encode a batch as stored in a tail."""
    return {"first": batch.first, "ids": batch.ids, "events": batch.events}


def listing(row: Row) -> Document:
    """Return the fields of a row by which lists are filtered and sorted. Empty fields are
    omitted."""
    fields = {name: value for name in _COLUMNS if (value := getattr(row, name)) is not None}
    if terms := catalog.row_terms(row):
        fields["terms"] = sorted(digest(*term) for term in terms)
    if items := catalog.pending_items(row):
        fields["waits"], fields["waits_to"] = items[0].at, items[-1].at
        fields["whats"] = sorted({item.what for item in items})
        assignees = {item.assignee for item in items if item.assignee is not None}
        if assignees:
            fields["assignees"] = sorted(assignees)
    return fields


def digest(map: str, key: str, term: str) -> bytes:
    """Hash a condition on a map to 16 bytes."""
    return hashlib.sha256(msgspec.json.encode((map, key, term))).digest()[:16]


def extended(
    entry: MongoLogEntry, plan: Extension, batch: Batch, moved: bool
) -> tuple[MongoLogEntry, Document]:
    """Return the log after an append, and the update that stores it. With `moved`, the frozen part
    is in `batches` and is removed from the tail."""
    lease = plan.lease_state or entry.lease
    kept, frozen, newest = entry.tail, entry.frozen, entry.newest
    if moved:
        kept, frozen, newest = kept[frozen:], 0, _newest_without(entry)
    after = entry._replace(row=plan.row, version=entry.version + 1, tail=(*kept, batch))
    after = after._replace(frozen=frozen, newest=newest, lease=lease)
    if frozen == 0 and (len(after.tail) >= TAIL_BATCHES or after.size >= TAIL_BYTES):
        after = after._replace(frozen=len(after.tail))
    after, update = listed(entry, after)
    push: Document = {"$each": [stored(batch)]}
    if moved and entry.frozen:
        push["$slice"] = -len(after.tail)
    update["$push"] = {"tail": push}
    if lease != entry.lease:
        update["$set"].update(lease_fields(lease))
    for name in ("frozen", "newest"):
        if getattr(after, name) != getattr(entry, name):
            update["$set"][name] = getattr(after, name)
    return after, update


def _newest_without(entry: MongoLogEntry) -> str:
    """Return the value of `newest` after the frozen part of the tail is removed."""
    ids = [id for batch in entry.tail[: entry.frozen] for id in batch.ids]
    return max(entry.newest, newest_of(ids))


def listed(
    entry: MongoLogEntry, after: MongoLogEntry, *, anew: bool = False
) -> tuple[MongoLogEntry, Document]:
    """Return the log with the row of `after`, and the update that writes it. The update sets a
    search field only if it changed or, with `anew`, if it is incorrect."""
    new = entry.listed
    if anew or entry.row != after.row:
        new = listing(after.row)
    changes: Document = {
        name: value for name, value in new.items() if entry.listed.get(name) != value
    }
    gone = [name for name in entry.listed if name not in new]
    changes.update(head=after.row.head, doc=_encode(after.row), version=after.version)
    update: Document = {"$set": changes}
    if gone:
        update["$unset"] = dict.fromkeys(gone, "")
    return after._replace(listed=new), update


def renewed(entry: MongoLogEntry, row: Row) -> tuple[MongoLogEntry, Document]:
    """Return the log with a row that was rebuilt from its events, and the update that stores it."""
    after = entry._replace(row=row, version=entry.version + 1, erasures=entry.erasures + 1)
    after, update = listed(entry, after, anew=True)
    update["$set"]["erasures"] = after.erasures
    return after, update


def leased(entry: MongoLogEntry, lease: LeaseState) -> tuple[MongoLogEntry, Document]:
    """Return the log with a new lease, and the update that stores it."""
    after = entry._replace(lease=lease, version=entry.version + 1)
    return after, {"$set": {**lease_fields(lease), "version": after.version}}


def frozen(entry: MongoLogEntry) -> tuple[MongoLogEntry, Document]:
    """Return the log with its whole tail frozen, and the update that stores it."""
    after = entry._replace(frozen=len(entry.tail), version=entry.version + 1)
    return after, {"$set": {"frozen": after.frozen, "version": after.version}}


def dropped(entry: MongoLogEntry) -> tuple[MongoLogEntry, Document]:
    """Return the log without the frozen part of its tail, and the update that stores it."""
    kept = entry.tail[entry.frozen :]
    newest = _newest_without(entry)
    after = entry._replace(tail=kept, frozen=0, newest=newest, version=entry.version + 1)
    push = {"$each": [], "$slice": -len(kept)} if kept else None
    update: Document = {"$set": {"frozen": 0, "newest": newest, "version": after.version}}
    if push:
        update["$push"] = {"tail": push}
    else:
        update["$set"]["tail"] = []
    return after, update


def buried(mark: str, now: int, whole: bool) -> Document:
    """Return the update that marks a log as deleted, with the id of the delete, and removes all
    fields that its forks do not need. `owned` stays set until everything that belongs to the
    session is removed."""
    gone = ("thread", "doc", "tail", "owner", "since", "by", "chain", "drafts", *_LISTED)
    return {
        "$set": {
            "state": DEAD,
            "deleted": mark,
            "hidden": now,
            "whole": whole,
            "owned": True,
            "frozen": 0,
        },
        "$unset": dict.fromkeys(gone, ""),
        "$inc": {"version": 1},
    }


# Shared history


def segments(entry: MongoLogEntry) -> list[Segment]:
    """Return the ranges of event numbers in `batches`, oldest first, each with the log that stores
    the events."""
    return [*entry.chain, Segment(entry.log, entry.shared, entry.rolled)]


def chain_at(entry: MongoLogEntry, at: int) -> tuple[Segment, ...]:
    """Return the ranges of event numbers up to `at`, each with the log that stores the events, for
    a fork at that number."""
    parts = [*entry.chain, Segment(entry.log, entry.shared, entry.row.head)]
    return tuple(part._replace(upto=min(part.upto, at)) for part in parts if part.after < at)


def newborn(row: Row, *, state: int = LIVE) -> MongoLogEntry:
    """Return the entry of a new log that is not in the database yet."""
    return MongoLogEntry(log=row.log, version=1, row=row, state=state)


def forked(parent: MongoLogEntry, row: Row, at: int, state: int) -> MongoLogEntry:
    """Return the entry of a new fork that is not in the database yet and shares the events up to
    number `at`. All of these events must already be moved out of the parent's tail."""
    chain = chain_at(parent, at)
    return MongoLogEntry(
        log=row.log,
        version=1,
        row=row,
        base=chain[-1].log,
        shared=at,
        chain=chain,
        newest=parent.newest,
        state=state,
    )
