"""A log as it is stored, and the ways to tamper with it. Pure.

Whoever tampers here is careful: numbers stay dense, hashes agree with their data, and rows say what
the events do. Only the links are as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast import NewEvent, Row
from holdfast.events import Event
from holdfast.log import catalog
from holdfast.log.codec import erased, fingerprint
from holdfast.stores import hash_chain, rules

BLANK = "somebody asked to"


class Record(Struct, frozen=True):
    """An event, its hash, and what is kept of its link."""

    event: Event
    hash: bytes
    kept: bytes | None


class Log(Struct, frozen=True):
    """A log's own events, which begin behind the number `after`, and its row; `left` is what is
    kept with the event at which it left another."""

    row: Row
    records: list[Record]
    after: int = 0
    left: bytes = b""

    @property
    def head(self) -> int:
        return self.after + len(self.records)

    def at(self, seq: int) -> Record:
        return self.records[seq - self.after - 1]

    def having(self, records: Sequence[Record]) -> Log:
        """This log with these events, numbered anew; the row says so too, but for its link."""
        numbered = [
            replace(record, event=replace(record.event, seq=seq))
            for seq, record in enumerate(records, self.after + 1)
        ]
        row = replace(rules.empty_row(self.row, self.after), link=self.row.link)
        if events := [record.event for record in numbered]:
            row = catalog.apply(row, events, [catalog.project(e) for e in events], row.link)
        return replace(self, row=row, records=numbered)

    def having_at(self, seq: int, record: Record) -> Log:
        place = seq - self.after - 1
        return self.having([*self.records[:place], record, *self.records[place + 1 :]])


def record_of(event: Event, kept: bytes | None) -> Record:
    return Record(event, fingerprint(event), kept)


def changed(log: Log, seq: int, **fields: Any) -> Log:
    """One event says something else; `data` is any JSON value."""
    if "data" in fields:
        fields["data"] = Raw(msgspec.json.encode(fields["data"]))
    old = log.at(seq)
    return log.having_at(seq, record_of(replace(old.event, **fields), old.kept))


def removed(log: Log, seq: int) -> Log:
    return log.having([record for record in log.records if record.event.seq != seq])


def swapped(log: Log, one: int, other: int) -> Log:
    records = list(log.records)
    a, b = one - log.after - 1, other - log.after - 1
    records[a], records[b] = records[b], records[a]
    return log.having(records)


def put_in(log: Log, seq: int, kept: bytes | None, *, data: Any = "forged") -> Log:
    """An event that nobody appended stands at a number, and the later ones behind it."""
    place = seq - log.after - 1
    event = NewEvent.of("note.made", data, id=f"forged {seq}").numbered(seq, 1_000)
    record = record_of(event, kept)
    return log.having([*log.records[:place], record, *log.records[place:]])


def kept_for(log: Log, seq: int, *, data: Any = "forged") -> bytes:
    """What is kept with an event of `put_in` whose link follows from the one before it."""
    before = hash_chain.ending(log.at(seq - 1).kept if seq > log.after + 1 else None)
    begun = hash_chain.origin(
        log.row.key, log.row.log, log.after, hash_chain.link_in(log.left)
    ).hex()
    row = replace(log.row, head=seq - 1, link=before or begun)
    event = put_in(log, seq, None, data=data).at(seq).event
    (kept,), _ = hash_chain.linked(row, [event], hash_chain.seals([event]))
    return kept


def relinked(log: Log) -> Log:
    """All links are made anew, and the row has the last: nothing in the log itself tells."""
    begun = hash_chain.origin(
        log.row.key, log.row.log, log.after, hash_chain.link_in(log.left)
    ).hex()
    events = [record.event for record in log.records]
    row = replace(log.row, head=log.after, link=begun)
    kept, link = hash_chain.linked(row, events, hash_chain.seals(events))
    records = [record_of(event, one) for event, one in zip(events, kept, strict=True)]
    return replace(log, row=replace(log.row, link=link), records=records)


def cut(log: Log, upto: int) -> Log:
    """Nothing stands behind a number any more."""
    return log.having(log.records[: upto - log.after])


def blanked(log: Log, seq: int, kept: bytes | None, *, reason: str = BLANK) -> Log:
    """The data of an event are gone, and this is kept of its link."""
    event = replace(log.at(seq).event, data=erased(reason))
    return log.having_at(seq, record_of(event, kept))


def erase(log: Log, seqs: Sequence[int], *, reason: str = BLANK) -> Log:
    """What a store makes of an erasure."""
    for seq in seqs:
        old = log.at(seq)
        log = blanked(log, seq, hash_chain.erased(old.kept, old.hash), reason=reason)
    return log
