"""Conversion of rows and events to database columns, and back. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Raw

from ...log import catalog
from ...log.catalog import Row, RowChange
from ...log.codec import LIMITS
from ...log.events import Event

encode = msgspec.json.Encoder().encode

_names = attrgetter("user", "workspace", "agent", "phase", "run")
_numbers = attrgetter("created", "active", "stale_at", "wake")
_maps = attrgetter("labels", "metadata", "surfaces")


def event_of(record: Any, data: bytes) -> Event:
    """Build an event from its record and its data."""
    return Event(
        kind=record["kind"],
        data=Raw(data),
        id=record["id"],
        v=record["v"],
        run=record["run"],
        actor=record["actor"],
        cause=record["cause"],
        seq=record["seq"],
        at=record["at"],
    )


def columns(row: Row) -> tuple[Any, ...]:
    """Return the fields that lists search by, in the order of the table."""
    return (*map(searchable, _names(row)), *_numbers(row))


def searchable(value: str | None) -> str | None:
    """Return the value if a query can search for it, else None. Values that cannot be searched for
    are in the row, but in no index."""
    if value is None or "\0" in value:
        return None
    size = len(value) if value.isascii() else len(value.encode())
    return value if size <= LIMITS.name_bytes else None


def listed(old: Row | None, new: Row) -> list[list[Any] | None]:
    """Return the values of a log's rows in the tables `terms` and `pending`, as seven columns. The
    columns of a table that did not change since `old` are None."""
    terms: list[Any] | None = None
    if old is None:
        terms = digests(new) or None
    elif _maps(old) != _maps(new) or (old.active != new.active and any(_maps(new))):
        terms = digests(new)
    if (catalog.waiting(old) if old else {}) == catalog.waiting(new):
        return [terms, *[None] * 6]
    items = catalog.pending_items(new)
    return [
        terms,
        [item.id for item in items],
        [searchable(item.what) for item in items],
        [searchable(item.assignee) for item in items],
        [item.at for item in items],
        [item.seq for item in items],
        [encode(item) for item in items],
    ]


def digests(row: Row) -> list[bytes]:
    """Return the hashes of a row's map entries, by which queries find them."""
    return sorted(digest(term) for term in catalog.row_terms(row))


def digest(term: tuple[str, str, str]) -> bytes:
    """Hash a (map, key, value) to a few bytes."""
    return hashlib.sha256(encode(term)).digest()


def dropped_drafts(changes: Iterable[RowChange]) -> list[str] | None:
    """Return the ids of the messages that these changes complete, whose drafts can be removed.
    Returns None if there are none."""
    dropped = [op.key for change in changes for op in change if op.do == "drop_draft"]
    return dropped or None
