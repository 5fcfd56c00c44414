"""Entries of a transcript as events, and back; batches that a store takes. Pure.

An entry is kept as it is, as the data of one event. JSON text that a store would refuse though
Python can read it (half of a surrogate pair, as a cut string has, numbers such as 1e400, deep
nesting) is kept as a string inside an event of a kind of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from ...errors import InvalidValue
from ...log.codec import LIMITS, check_name, too_deep
from ...log.events import NewEvent, new_id, to_json

ENTRY = "claude.entry"
TEXT = "claude.entry.text"  # the entry is JSON text in the string `text`
KINDS = (ENTRY, TEXT)
NEW = "new:"  # begins the ids of entries that none had before

SPARE_EVENTS = 4  # room in an append for what the adapter adds to a batch
SPARE_BYTES = 1 << 20


class Text(msgspec.Struct, frozen=True):
    text: str


DEEPEST = 500  # levels that every Python can read again


def to_event(entry: Any, id: str | None = None) -> NewEvent:
    """The event of an entry. Without an `id`, that of its uuid; without a uuid, a new one."""
    kind, data = encode(entry)
    return NewEvent(kind=kind, data=data, id=id or entry_id(entry) or f"{NEW}{new_id()}")


def encode(entry: Any) -> tuple[str, Raw]:
    """An entry as the kind and the data of an event; `InvalidValue` if it is not JSON."""
    try:
        data = to_json(entry)
        if not too_deep(bytes(data)):
            return ENTRY, data
    except InvalidValue:
        pass
    try:
        text = json.dumps(entry, separators=(",", ":"))
        data = to_json(Text(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(
            field="entries", problem=f"hold what is not JSON ({error})", remedy="use JSON values"
        ) from error
    if too_deep(text.encode("utf-8", "surrogatepass"), DEEPEST):
        raise InvalidValue(
            field="entries",
            problem=f"are nested deeper than {DEEPEST} levels",
            remedy="flatten them",
            limit=DEEPEST,
        )
    return TEXT, data


def decode(event: NewEvent) -> Any:
    """The entry of an event, made anew at each call."""
    if event.kind == TEXT:
        return json.loads(msgspec.json.decode(event.data, type=Text).text)
    return msgspec.json.decode(event.data)


def is_entry(event: NewEvent) -> bool:
    """Whether an event holds an entry, and it was not erased."""
    return event.kind in KINDS and not _erased(event)


def _erased(event: NewEvent) -> bool:
    if not bytes(event.data).startswith(b'{"erased":'):
        return False
    return list(msgspec.json.decode(event.data)) == ["erased"]


def unique(events: Sequence[NewEvent]) -> list[NewEvent]:
    """The events in order, the first one of each id."""
    found: dict[str, NewEvent] = {}
    for event in events:
        found.setdefault(event.id, event)
    return list(found.values())


def entry_id(entry: Any) -> str | None:
    """The event id of an entry with a uuid; None without one. A uuid that is too long for an
    id, or holds what an id may not, counts by its hash."""
    uuid = entry.get("uuid") if isinstance(entry, dict) else None
    if not isinstance(uuid, str) or not uuid:
        return None
    name = f"uuid:{uuid}"
    try:
        check_name("id", name)
    except InvalidValue:
        return "hash:" + hashlib.sha256(json.dumps(uuid).encode()).hexdigest()
    return name


def digest(entry: Any) -> str:
    """A hash of an entry's content, whatever the order of its fields."""
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def appends(events: Sequence[NewEvent]) -> Iterator[list[NewEvent]]:
    """The events in order, in pieces that a store takes in one append, with room to spare."""
    piece: list[NewEvent] = []
    size = 0
    for event in events:
        full = len(piece) >= LIMITS.append_events - SPARE_EVENTS
        if piece and (full or size + len(event.data) > LIMITS.append_bytes - SPARE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(event)
        size += len(event.data)
    if piece:
        yield piece


def objects(entries: Iterable[Any]) -> list[Any]:
    """The entries that are JSON objects: all that a summary is made of."""
    return [entry for entry in entries if isinstance(entry, dict)]
