"""What an encrypted event shows: as much of its payload as its log's row is made of.

The version of such an event is raised by `BOXED`. Its data are a `Box`: the encrypted payload, and
beside it in clear what rows and lists go by. So a store projects rows and verifies logs without
any key. Texts among it are encrypted by themselves. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ..codec import typed
from ..events import Event, NewEvent

BOXED = 1 << 30
NEWER = 3 << 29  # what is raised beyond it is of a format that this version does not know
PREVIEW = 200  # characters of a text that a row shows

# The fields that are shown as they are, by kind; a kind of which nothing is shown needs no entry.
CLEAR: dict[str, tuple[str, ...]] = {
    "session.created": ("agent", "user", "workspace", "ttl", "expiry", "labels", "metadata"),
    "session.pinned": ("pinned",),
    "session.timed": ("ttl", "expiry"),
    "session.moved": ("to",),
    "thread.created": ("agent", "parent"),
    "thread.forked": ("agent", "parent", "at"),
    "thread.reported": ("item", "due"),
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
}

# The field that is shown encrypted, and what it is in the row, by kind.
TEXTS = {
    "session.created": ("title", "title"),
    "session.held": ("hold", "hold"),
    "thread.created": ("title", "title"),
    "thread.forked": ("title", "title"),
    "thread.renamed": ("title", "title"),
    "message.received": ("text", "first_message"),
    "pending.opened": ("title", "pending"),
}
CUT = ("first_message", "pending")
LOST = "log.damaged"  # the kind of what stands for an event of which nothing is left
SEALED = 28  # bytes that encryption adds: nonce and tag
ERASED, ERASED_MOST = b'{"erased":"box:', 600  # how the mark of an erasure begins; bytes it has
_ERASED = re.compile(re.escape(ERASED) + rb'[0-9a-f]{16}:([A-Za-z0-9+/]*)(=*)"\}')
CALL = {"id": "", "name": ""}  # stands for a call, of which rows only know that there is one


class Box(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of an encrypted event, which had `size` bytes. `tie` binds it to its number
    and time."""

    box: str
    size: int
    shown: Raw = Raw(b"null")
    tie: str = ""


_box = msgspec.json.Decoder(Box).decode


def box_of(event: NewEvent) -> Box | None:
    """The box in an event's data; None if that is not what they are."""
    if event.v <= BOXED:
        return None
    try:
        return _box(event.data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def size_of(event: NewEvent) -> int:
    """How many bytes the data of an event have, or had before they were encrypted."""
    if (box := box_of(event)) is not None:
        return box.size
    size = len(event.data)
    if size > ERASED_MOST or not bytes(event.data).startswith(ERASED):
        return size
    erased = _ERASED.fullmatch(event.data)
    if erased is None:
        return size
    text, rest = erased.groups()
    return (len(text) + len(rest)) // 4 * 3 - len(rest) - SEALED


def shown(event: NewEvent, encrypt: Callable[[tuple[str, ...], str], str]) -> dict[str, Any] | None:
    """What an event is to show in clear; `encrypt` is given the name of a text in the row, that of
    an item with its id, and the text. None where this version does not know the payload."""
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
    """An encrypted event with what it shows in place of its data; one that was erased shows that
    it was there."""
    box = box_of(event)
    data = event.data if box is None else box.shown
    return msgspec.structs.replace(event, data=data, v=event.v - BOXED)
