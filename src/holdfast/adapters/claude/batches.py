"""Converts transcript entries to events, in batches that a store accepts in one append. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ...bundle.claude.entries import encode
from ...errors import InvalidValue
from ...log.codec import LIMITS, check_name
from ...log.events import NewEvent, new_id

NEW = "new:"  # prefix of the ids of entries without a uuid

SPARE_EVENTS = 4  # room in an append for the events that the adapter adds to a batch
SPARE_BYTES = 1 << 20


def to_event(entry: Any, id: str | None = None) -> NewEvent:
    """Convert an entry to an event. By default, the event id is derived from the entry's uuid; for
    an entry without a uuid, an id is generated."""
    kind, data = encode(entry)
    return NewEvent(kind=kind, data=data, id=id or entry_id(entry) or f"{NEW}{new_id()}")


def unique(events: Sequence[NewEvent]) -> list[NewEvent]:
    """Return the events in order. Of several events with the same id, only the first is kept."""
    found: dict[str, NewEvent] = {}
    for event in events:
        found.setdefault(event.id, event)
    return list(found.values())


def entry_id(entry: Any) -> str | None:
    """Return the event id for an entry with a uuid, or None without one. A uuid that is not valid
    in an event id is hashed."""
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
    """Return a hash of an entry's content that does not depend on the order of its fields."""
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def split(events: Sequence[NewEvent]) -> Iterator[list[NewEvent]]:
    """Yield the events in order, in batches that a store accepts in one append, with room for a few
    additional events."""
    batch: list[NewEvent] = []
    size = 0
    for event in events:
        full = len(batch) >= LIMITS.append_events - SPARE_EVENTS
        if batch and (full or size + len(event.data) > LIMITS.append_bytes - SPARE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(event.data)
    if batch:
        yield batch
