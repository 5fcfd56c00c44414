"""Encryption and decryption of events, rows and snapshots. Each encrypted value is bound to its
location, so it cannot be moved to another."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from hmac import compare_digest
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ...errors import InvalidValue, KeyMissing
from ...log.catalog import Pending, Row
from ...log.catalog.encrypted_preview import BOXED, NEWER, Box, box_of, shown
from ...log.codec import LIMITS, erased, is_erased
from ...log.events import Event, Key, NewEvent
from ..port import Snapshot
from . import key_rings
from .key_rings import PLAIN, Ring, UnknownKey, Unsealed

VERSIONS = NEWER - BOXED - 1  # the highest version of an event that can be encrypted
REASON_BYTES = 340  # the longest reason of an erasure; encrypted, it must fit into a name
RESTORED_BYTES = 2_900  # the same for restored events, which must still count as erased
TEXT = "box:"  # prefix of an encrypted text
ERASED = ("erased",)
TITLES = ("title", "first_message", "hold")

_encode = msgspec.json.Encoder().encode


class _Erased(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    erased: str


_erased = msgspec.json.Decoder(_Erased).decode


# Events


class Boxed(NewEvent, frozen=True, kw_only=True, gc=True):
    """An event with encrypted data. The data is bound to the event's number and time when these are
    known."""

    tie: Callable[[int, int], str]

    def numbered(self, seq: int, at: int) -> Event:
        plain = NewEvent.numbered(self, seq, at)
        tied = b"".join((bytes(self.data)[:-1], b',"tie":', _encode(self.tie(seq, at)), b"}"))
        return replace(plain, data=Raw(tied))


def boxed(ring: Ring, key: Key, event: NewEvent) -> Boxed:
    """Encrypt the data of an event."""
    if event.v > VERSIONS:
        problem = f"event version {event.v} is not supported in an encrypted store"
        raise InvalidValue(field="v", problem=problem, remedy=f"use 1 to {VERSIONS}")

    def text(of: tuple[str, ...], said: str) -> str:
        return TEXT + ring.encrypt(key.session, ("text", key.thread, *of), said.encode())

    clear = _encode(shown(event, text))
    data = bytes(event.data)
    box = ring.encrypt(key.session, _bound(event, event.v), data, clear)
    return Boxed(
        kind=event.kind,
        data=Raw(_encode(Box(box=box, size=len(data), shown=Raw(clear)))),
        id=event.id,
        v=event.v + BOXED,
        run=event.run,
        actor=event.actor,
        cause=event.cause,
        tie=partial(ring.tie, key.session, box),
    )


def boxed_all(ring: Ring, key: Key, events: Sequence[NewEvent]) -> list[Boxed]:
    """Encrypt the events of one append."""
    return [boxed(ring, key, event) for event in events]


def boxed_restored(ring: Ring, key: Key, event: Event) -> Event:
    """Encrypt an event for a restore. An erased event stays erased, so that the row of the log
    counts it as erased."""
    reason = _reason(event)
    if reason is None or event.v > VERSIONS:
        return boxed(ring, key, event).numbered(event.seq, event.at)
    data = erased(_box_reason(ring, key, erased(reason)))
    return replace(event, data=data, v=event.v + BOXED)


def _reason(event: Event) -> str | None:
    """Return the reason why an event was erased; None if it was not erased, or if the reason cannot
    be encrypted."""
    if not is_erased(event) or len(event.data) > RESTORED_BYTES:
        return None
    try:
        reason = _erased(event.data).erased
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return reason if erased(reason) == event.data else None


def opened(key: Key, event: Event, ring: Ring) -> Event:
    """Decrypt an event that `boxed` encrypted, or an erased event. Raises `Unsealed` if this
    fails."""
    if event.v >= NEWER:
        raise Unsealed(key_rings.NEWER)
    box = box_of(event)
    if box is None:
        return _opened_bare(key, event, ring)
    tie = ring.tie(key.session, box.box, event.seq, event.at)
    if not compare_digest(tie.encode(), box.tie.encode()):
        raise Unsealed
    v = event.v - BOXED
    data = ring.decrypt(key.session, _bound(event, v), box.box, bytes(box.shown))
    if len(data) != box.size:
        raise Unsealed
    return replace(event, data=Raw(data), v=v)


def _bound(event: NewEvent, v: int) -> tuple[Any, ...]:
    return ("event", event.id, event.kind, v, event.run, event.actor, event.cause)


def _opened_bare(key: Key, event: Event, ring: Ring) -> Event:
    """Decrypt the reason of an erased event, or of the placeholder for a lost event."""
    try:
        reason = _erased(event.data).erased
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unsealed(PLAIN) from error
    if not reason.startswith(TEXT):
        raise Unsealed(PLAIN)
    data = ring.decrypt(key.session, ERASED, reason.removeprefix(TEXT))
    return replace(event, data=Raw(data), v=event.v - BOXED if event.v > BOXED else event.v)


def boxed_reason(ring: Ring, key: Key, reason: str) -> str:
    """Encrypt the reason of an erasure, so that it cannot be forged without the keys. The result is
    the same in all forks."""
    data = erased(reason)
    if len(data) > REASON_BYTES:
        raise InvalidValue(
            field="reason",
            problem=f"has {len(data)} bytes",
            remedy=f"use at most {REASON_BYTES} in an encrypted store",
            limit=REASON_BYTES,
        )
    return _box_reason(ring, key, data)


def _box_reason(ring: Ring, key: Key, data: Raw) -> str:
    return TEXT + ring.encrypt(key.session, ERASED, bytes(data))


# Texts


def _text(ring: Ring, key: Key, of: tuple[str, ...], text: Any) -> str | None:
    """Decrypt a text of a row. Returns None if the text was not encrypted for this location."""
    if not isinstance(text, str) or not text.startswith(TEXT):
        return "" if text == "" else None
    try:
        place = ("text", key.thread, *of)
        return ring.decrypt(key.session, place, text.removeprefix(TEXT)).decode()
    except UnknownKey:
        raise
    except (Unsealed, KeyMissing):
        return None


# Rows


def opened_row(key: Key, row: Row, ring: Ring) -> Row:
    """Decrypt the texts of a row. Texts that were not encrypted for their location are omitted."""
    texts = {
        name: _text(ring, key, (name,), value)
        for name in TITLES
        if (value := getattr(row, name)) is not None
    }
    waits = {
        id: item | {"title": _text(ring, key, ("pending", id), item["title"])}
        if isinstance(item, dict) and item.get("title") is not None
        else item
        for id, item in row.pending.items()
    }
    if row.hold is not None and texts["hold"] is None:
        texts["hold"] = "unreadable"  # keep the hold even without its text
    return replace(row, **texts, pending=waits)


def opened_item(item: Pending, ring: Ring) -> Pending:
    """Decrypt the texts of a pending item, in the same way as the texts of a row."""
    if item.title is None:
        return item
    key = Key(item.tenant, item.session, item.thread)
    return replace(item, title=_text(ring, key, ("pending", item.id), item.title))


# Snapshots


class _Kept(msgspec.Struct, frozen=True):
    box: str


_kept = msgspec.json.Decoder(_Kept).decode


def _bound_snapshot(key: Key, snapshot: Snapshot) -> tuple[Any, ...]:
    return ("snapshot", key.thread, snapshot.log, snapshot.seq, snapshot.version)


def boxed_snapshot(ring: Ring, key: Key, snapshot: Snapshot) -> Snapshot | None:
    """Encrypt the state of a snapshot. Returns None if the result is too large to be stored."""
    data = zlib.compress(bytes(snapshot.state), 1)
    box = ring.encrypt(key.session, _bound_snapshot(key, snapshot), data)
    state = Raw(_encode(_Kept(box)))
    return replace(snapshot, state=state) if len(state) <= LIMITS.snapshot_bytes else None


def opened_snapshot(key: Key, snapshot: Snapshot, ring: Ring) -> Snapshot | None:
    """Decrypt a snapshot. Returns None if it was not encrypted for this location."""
    try:
        box = _kept(snapshot.state).box
        data = ring.decrypt(key.session, _bound_snapshot(key, snapshot), box)
    except UnknownKey:
        raise
    except (Unsealed, KeyMissing, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return replace(snapshot, state=Raw(zlib.decompress(data)))
