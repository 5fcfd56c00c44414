"""An event's data as a database keeps it, and what to raise when it is not that any more. Pure.

Bytes behind a format byte: `j` is a CRC-32 and JSON. The CRC is checked by every read; the
event's SHA-256, which costs more, by `verify`.
"""

from __future__ import annotations

from zlib import crc32

import msgspec
from msgspec import Raw

from ..errors import LogDamaged
from ..log.events import Event, Key

FRAME = 5  # bytes before the JSON


def packed(data: bytes | Raw) -> bytes:
    """Data as a column holds it."""
    return b"".join((b"j", crc32(data).to_bytes(4, "big"), data))


def unpacked(column: bytes) -> bytes | None:
    """What `packed` was given, or None if that is not what the column holds."""
    data = column[FRAME:]
    sound = column[:1] == b"j" and crc32(data) == int.from_bytes(column[1:FRAME], "big")
    return data if sound and data else None


def spoiled(key: Key, event: Event) -> LogDamaged:
    """What to raise for an event whose data are gone or differ from their hash."""
    try:
        event.json()
        return damaged(key, event.seq, "does not agree with its hash")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return damaged(key, event.seq, "is unreadable")


def damaged(key: Key, seq: int, what: str) -> LogDamaged:
    """What to raise for an event that cannot be given."""
    return LogDamaged(
        problem=f"event {seq} of {key.session!r}/{key.thread!r} {what}: "
        "`holdfast verify` tells more, reading on after it works",
        tenant=key.tenant,
        session=key.session,
        thread=key.thread,
        seq=seq,
    )
