"""The clear-text fields of encrypted events, which stores need to update rows.

The version of an encrypted event is raised by `BOXED`. Its data is a `Box`: the encrypted payload
and, in clear text, the fields that rows and lists use. So a store can update rows and verify logs
without any key. Text fields among the clear-text fields are encrypted separately. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ..codec import ERASED_BYTES, typed
from ..events import Event, NewEvent

BOXED = 1 << 30
NEWER = 3 << 29  # above it, the version has a format that this program does not support
PREVIEW = 200  # characters of a text that a row stores

# The clear-text fields by kind. Kinds without clear-text fields are omitted.
CLEAR: dict[str, tuple[str, ...]] = {
    "session.created": ("agent", "user", "workspace", "ttl", "expiry", "labels", "metadata"),
    "session.pinned": ("pinned",),
    "session.timed": ("ttl", "expiry"),
    "session.moved": ("to",),
    "session.adopted": ("agent",),
    "thread.created": ("agent", "parent"),
    "thread.forked": ("agent", "parent", "at"),
    "thread.reported": ("item", "due"),
    "thread.rewound": ("to", "window", "due", "messages"),
    "label.added": ("label",),
    "label.removed": ("label",),
    "metadata.changed": ("set", "drop"),
    "surface.attached": ("surface", "address", "detail", "touch"),
    "surface.detached": ("surface", "address"),
    "message.completed": ("usage",),
    "run.waiting": ("due",),
    "run.finished": ("status", "due"),
    "timer.planned": ("due",),
    "pending.opened": ("id", "what", "call", "assignee", "expires", "risk", "approvals"),
    "pending.settled": ("id", "outcome"),
    "run.charged": ("usage",),
    "surface.hooked": ("due",),
    "surface.delivered": ("seq", "due", "looked"),
    "surface.failed": ("seq", "due", "dead"),
}

# The text field that is encrypted separately, and its name in the row, by kind.
TEXTS = {
    "session.created": ("title", "title"),
    "session.held": ("hold", "hold"),
    "thread.created": ("title", "title"),
    "thread.forked": ("title", "title"),
    "thread.renamed": ("title", "title"),
    "thread.rewound": ("first", "first_message"),
    "message.received": ("text", "first_message"),
    "pending.opened": ("title", "pending"),
}
CUT = ("first_message", "pending")
LOST = "log.damaged"  # the kind of the placeholder for a lost event
SEALED = 28  # bytes that encryption adds: nonce and tag
ERASED = b'{"erased":"box:'  # prefix of an erasure's mark
_ERASED = re.compile(re.escape(ERASED) + rb'[0-9a-f]{16}:([A-Za-z0-9+/]*)(=*)"\}')
CALL = {"id": "", "name": ""}  # a placeholder for a call, since rows only count calls


class Box(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of an encrypted event. `size` is the size of the data in bytes before encryption.
    `tie` binds the encrypted data to the number and time of the event."""

    box: str
    size: int
    shown: Raw = Raw(b"null")
    tie: str = ""


_box = msgspec.json.Decoder(Box).decode


def box_of(event: NewEvent) -> Box | None:
    """Return the `Box` in an event's data, or None if the data is not a `Box`."""
    if event.v <= BOXED:
        return None
    try:
        return _box(event.data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def size_of(event: NewEvent) -> int:
    """Return the size of an event's data in bytes; for an encrypted event, the size before
    encryption."""
    if (box := box_of(event)) is not None:
        return box.size
    size = len(event.data)
    if size > ERASED_BYTES or not bytes(event.data).startswith(ERASED):
        return size
    erased = _ERASED.fullmatch(event.data)
    if erased is None:
        return size
    text, rest = erased.groups()
    return (len(text) + len(rest)) // 4 * 3 - len(rest) - SEALED


def shown(event: NewEvent, encrypt: Callable[[tuple[str, ...], str], str]) -> dict[str, Any] | None:
    """Return the fields of an event that stay in clear text. `encrypt` is called for each text
    field, with its name in the row (for a pending item, including the item's id) and its text.
    Returns None if this version cannot read the payload."""
    payload = typed(event)
    if payload is None:
        return None
    fields = {name: getattr(payload, name) for name in CLEAR.get(event.kind, ())}
    field, name = TEXTS.get(event.kind, ("", ""))
    text = getattr(payload, field, None)
    if text:
        of = (name, fields["id"]) if name == "pending" else (name,)
        fields[field] = encrypt(of, text[:PREVIEW] if name in CUT else text)
    elif text is not None:
        fields[field] = text
    if event.kind == "message.completed":
        fields["calls"] = [CALL] * len(getattr(payload, "calls", ()))
    return fields


def as_shown(event: Event) -> Event:
    """Return an encrypted event with its clear-text fields in place of its data. For an erased
    event, the data only says that the event was erased."""
    box = box_of(event)
    data = event.data if box is None else box.shown
    return msgspec.structs.replace(event, data=data, v=event.v - BOXED)
