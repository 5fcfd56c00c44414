"""Limits for stored values, checks against them, the hash that `verify` recomputes, and decoding of
payloads.

Every store calls `check` before it writes anything, so that all stores reject the same values with
the same error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ..errors import InvalidValue
from .events import KINDS, Event, Key, NewEvent, Payload, Scope


class Limits(Struct, frozen=True, kw_only=True):
    """The sizes, depths and counts that apply to every store.

    See [limits](../platforms.md#limits).
    """

    name_bytes: int = 512
    kind_bytes: int = 100
    event_bytes: int = 64 << 20
    append_events: int = 1_000
    append_bytes: int = 128 << 20
    depth: int = 128
    blob_bytes: int = 64 << 20
    draft_bytes: int = 1 << 20
    snapshot_bytes: int = 1 << 20
    map_entries: int = 100
    map_bytes: int = 16 << 10
    claim_bytes: int = 2_048
    page: int = 1_000


LIMITS = Limits()
LARGEST = (1 << 53) - 1  # integers that every store and every JSON reader keeps exactly

_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_WHOLE = re.compile(rb'(?:[^"]*+"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_PIECE = 256 << 10  # bytes of a text that are scanned at a time
_LF, _CR, _LIST = 0x0A, 0x0D, 0x5B  # integers, which `in` finds faster than bytes
_BLANKS = (b" ", b"\t")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def check_name(field: str, value: Any, *, limit: int = LIMITS.name_bytes) -> None:
    """Reject a name that some store cannot store. A name must have 1 to `limit` bytes of UTF-8,
    without NUL."""
    if type(value) is str and value.isascii() and 0 < len(value) <= limit and "\0" not in value:
        return
    if not isinstance(value, str):
        raise InvalidValue(field=field, problem=f"is {type(value).__name__}", remedy="pass a str")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidValue(
            field=field, problem="contains a lone surrogate", remedy="pass valid Unicode"
        ) from error
    if not 1 <= size <= limit:
        raise InvalidValue(
            field=field,
            problem=f"has {size} bytes of UTF-8",
            remedy=f"use 1 to {limit} bytes",
            limit=limit,
        )
    if "\0" in value:
        raise InvalidValue(field=field, problem="contains a NUL character", remedy="remove it")


def check_key(key: Key | Scope) -> None:
    """Reject a key with an invalid tenant, session or thread."""
    if not isinstance(key, (Key, Scope)):
        raise InvalidValue(
            field="key", problem=f"is {type(key).__name__}", remedy="create it with holdfast.key()"
        )
    check_name("tenant", key.tenant)
    check_name("session", key.session)
    if isinstance(key, Key):
        check_name("thread", key.thread)


def check_count(field: str, value: Any, *, least: int, most: int = LARGEST) -> None:
    """Reject a number that is not an integer from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidValue(
            field=field, problem=f"is {value!r}", remedy=f"pass an integer of at least {least}"
        )
    if value > most:
        raise InvalidValue(
            field=field, problem=f"is {value}", remedy=f"pass at most {most}", limit=most
        )


def check_choice(field: str, value: Any, choices: Iterable[Any]) -> None:
    """Reject a value that is not one of `choices`."""
    known = tuple(choices)
    if value not in known:
        raise InvalidValue(
            field=field,
            problem=f"is {value!r}",
            remedy=f"use one of {', '.join(map(str, known))}",
        )


def check_size(field: str, data: Any, limit: int) -> None:
    """Reject bytes or text of more than `limit` bytes."""
    size = len(data)
    if size > limit:
        raise InvalidValue(
            field=field, problem=f"has {size} bytes", remedy=f"use at most {limit}", limit=limit
        )


def check(key: Key, events: Sequence[NewEvent]) -> int:
    """Reject events that some store cannot append. Stores call this before any write. Returns the
    total size of the events' data in bytes."""
    check_key(key)
    if type(events) is not list and not isinstance(events, Sequence):
        raise InvalidValue(
            field="events", problem=f"is {type(events).__name__}", remedy="pass a list of NewEvent"
        )
    if not 1 <= len(events) <= LIMITS.append_events:
        raise InvalidValue(
            field="events",
            problem=f"has {len(events)} entries",
            remedy=f"append 1 to {LIMITS.append_events} events at a time",
            limit=LIMITS.append_events,
        )
    total = 0
    for event in events:
        check_event(event)
        total += len(event.data)
    if total > LIMITS.append_bytes:
        raise InvalidValue(
            field="events",
            problem=f"has {total} bytes of data",
            remedy="append fewer events at a time",
            limit=LIMITS.append_bytes,
        )
    return total


def check_event(event: NewEvent) -> None:
    """Reject an event that exceeds a limit, or whose data is not one line of JSON."""
    if not isinstance(event, NewEvent):
        raise InvalidValue(
            field="events",
            problem=f"contains {type(event).__name__}",
            remedy="pass NewEvent values",
        )
    check_name("id", event.id)
    if type(event.kind) is not str or event.kind not in KINDS:
        check_name("kind", event.kind, limit=LIMITS.kind_bytes)
    if type(event.v) is not int or event.v != 1:
        check_count("v", event.v, least=1, most=(1 << 31) - 1)
    if event.run is not None:
        check_name("run", event.run)
    if event.actor is not None:
        check_name("actor", event.actor)
    if event.cause is not None:
        check_name("cause", event.cause)
    check_data(event.data)


def check_stored(event: Event) -> None:
    """Reject an event that cannot be restored into a log."""
    check_event(event)
    if not isinstance(event, Event):
        raise InvalidValue(
            field="events", problem="contains events without numbers", remedy="pass Event values"
        )
    check_count("seq", event.seq, least=1)
    check_count("at", event.at, least=0)


def check_data(data: Raw) -> None:
    """Reject data that is not one line of JSON within the size and depth limits."""
    if not isinstance(data, Raw):
        raise InvalidValue(
            field="data", problem=f"is {type(data).__name__}", remedy="create it with NewEvent.of"
        )
    text = bytes(data)
    if len(text) > LIMITS.event_bytes:
        check_size("data", text, LIMITS.event_bytes)
    if too_deep(text):
        raise InvalidValue(
            field="data",
            problem=f"is nested deeper than {LIMITS.depth} levels",
            remedy="flatten it, or store it as a JSON string",
            limit=LIMITS.depth,
        )
    if _LF in text or _CR in text or text[:1] in _BLANKS or text[-1:] in _BLANKS:
        raise InvalidValue(
            field="data",
            problem="has line breaks or surrounding whitespace",
            remedy="create it with NewEvent.of",
        )
    try:
        _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue(
            field="data", problem=f"is not JSON ({error})", remedy="create it with NewEvent.of"
        ) from error


def too_deep(text: bytes, limit: int = LIMITS.depth) -> bool:
    """Return whether the brackets of a JSON text are nested deeper than the limit. They are counted
    here because a decoder's own limit depends on the depth of the caller's stack."""
    if (text.count(b"[") if _LIST in text else 0) + text.count(b"{") <= limit:
        return False
    level = 0
    for piece in without_strings(text):
        for bracket in piece.translate(None, _NOT_BRACKETS):
            level += 1 if bracket in b"[{" else -1
            if level > limit:
                return True
    return False


def too_many(text: bytes, limit: int) -> bool:
    """Return whether a JSON text has more than approximately `limit` values. They are counted
    without decoding the text, since decoding can take many times its size in memory."""
    if text.count(b",") + text.count(b"[") + text.count(b"{") <= limit:
        return False
    found = 0
    for piece in without_strings(text):
        found += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
        if found > limit:
            return True
    return False


def without_strings(text: bytes) -> Iterator[bytes]:
    """Yield a JSON text in pieces, with its strings removed, so that long strings need no
    additional memory."""
    at = 0
    while at < len(text):
        piece = text[at : at + _PIECE]
        whole = _WHOLE.match(piece)
        begun = piece.find(b'"', whole.end() if whole else 0)
        if begun < 0:
            yield _STRINGS.sub(b"", piece)
            at += len(piece)
            continue
        yield _STRINGS.sub(b"", piece[:begun])
        string = _STRINGS.match(text, at + begun)
        if string is None:
            return  # an unterminated string, so this is not JSON
        at = string.end()


def fingerprint(event: NewEvent) -> bytes:
    """Return the SHA-256 hash of an event: over the JSON array of its id, kind and version, a line
    feed, and its data."""
    envelope = _encode((event.id, event.kind, event.v))
    return hashlib.sha256(b"\n".join((envelope, event.data))).digest()


ERASED_BYTES = 4 << 10  # the data of an erased event is never longer
_ERASED = b'{"erased":'  # prefix of the data of an erased event


def erased(reason: str) -> Raw:
    """Return the data that replaces the data of an erased event."""
    return Raw(msgspec.json.encode({"erased": reason}))


def is_erased(event: NewEvent) -> bool:
    """Return whether the data of an event was erased."""
    data = event.data
    return len(data) <= ERASED_BYTES and bytes(data).startswith(_ERASED)


def understood(event: NewEvent) -> bool:
    """Return whether this version supports the event's kind and version. `State.too_new` says
    whether an unknown event prevents driving."""
    return event.kind in KINDS and event.v == 1


@cache
def _decoder(kind: str) -> msgspec.json.Decoder[Payload]:
    return msgspec.json.Decoder(KINDS[kind])


def typed(event: NewEvent) -> Payload | None:
    """Return the payload as the type of its kind. Returns None if the kind is unknown, too new or
    does not match the type. An erased event whose kind has no required fields yields an empty
    payload, because it still counts that the event happened."""
    if not understood(event):
        return None
    try:
        return _decoder(event.kind).decode(event.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def dense(events: Iterable[Event], after: int) -> None:
    """Reject events whose numbers are not `after` + 1, `after` + 2 and so on."""
    for number, event in enumerate(events, after + 1):
        if event.seq != number:
            raise InvalidValue(
                field="events",
                problem=f"has event {event.seq} in place of event {number}",
                remedy="pass all events of the log, in order",
            )
