"""Encoding of event data in a database column, and the errors for damaged data. Pure functions.

The first byte is the format. Format `j` is followed by a CRC-32 and JSON. Every read checks the
CRC; `verify` also checks the event's SHA-256, which is more expensive.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

import msgspec
from msgspec import Raw

from ..errors import LogDamaged
from ..log.events import Event, Key

_HEAD = Struct(">cI")
FRAME = _HEAD.size  # bytes before the JSON
head_of = _HEAD.unpack_from  # the format and the CRC of a column


def packed(data: bytes | Raw) -> bytes:
    """Encode event data for a database column: the format byte, a CRC-32 and the JSON."""
    return b"".join((_HEAD.pack(b"j", crc32(data)), data))


def unpacked(column: bytes) -> bytes | None:
    """Return the data that was passed to `packed`, or None if the column is damaged or has another
    format."""
    data = column[FRAME:]
    return data if data and head_of(column) == (b"j", crc32(data)) else None


def spoiled(key: Key, event: Event) -> LogDamaged:
    """Return the error for an event whose data is missing or does not match its hash."""
    try:
        event.json()
        return damaged(key, event.seq, "does not match its hash")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return damaged(key, event.seq, "is unreadable")


def damaged(key: Key, seq: int, what: str) -> LogDamaged:
    """Return the error for an event that is missing or unreadable. `what` says what is wrong with
    it."""
    return LogDamaged(
        problem=f"event {seq} of {key.session!r}/{key.thread!r} {what}: "
        "run `holdfast verify` for details, or continue reading after this event",
        tenant=key.tenant,
        session=key.session,
        thread=key.thread,
        seq=seq,
    )
