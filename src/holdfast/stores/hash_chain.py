"""The links of a log, a hash chain: each link depends on an event and on all events before it.

The **link** of an event is a SHA-256 over the previous link, a mark, and the event without its
data: number, id, kind, version, run, actor, cause and time. The **mark** is a SHA-256 over a salt
and the event's hash, so it binds the data. When the data is erased, the salt is erased too: the
mark stays, the links remain valid, and the mark reveals nothing about the erased data. The chain of
a log begins with a hash of the log's key and incarnation. The chain of a fork begins with the link
of the event at which the fork left its parent.

Each event is stored with a format byte followed by its content: `w` with salt and link; `e` with
mark and link, if the data is erased; `x` with a link, if the event was damaged and then erased.
Events that an older release wrote have no such bytes. The functions are pure, except that salts are
random.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from ..environment import current
from ..log.catalog import Row
from ..log.catalog.encrypted_preview import LOST
from ..log.codec import fingerprint
from ..log.events import Event, Key, NewEvent
from .port import Damage

SALT = 16
BROKEN = "does not match its link: this event or an earlier one was altered, removed or moved"
BARE = "has no link although the previous event has one: an older release or a manual edit wrote it"
ENDED = "is not the last event of the log: events were removed or added"

_encode = msgspec.json.Encoder().encode
_envelope = attrgetter("seq", "id", "kind", "v", "run", "actor", "cause", "at")
_sha256 = hashlib.sha256


class Seal(NamedTuple):
    """The inputs from which an event's link is computed: the hash of the event, and a random
    salt."""

    hash: bytes
    salt: bytes

    def of(self, event: NewEvent) -> Seal:
        """Return the seal of an event whose data changed when the event got its number. The salt
        stays the same."""
        return Seal(fingerprint(event), self.salt)


def seals(events: Sequence[NewEvent]) -> list[Seal]:
    """Return the hash and a new random salt for each event that is about to be appended."""
    salts = current().token_bytes(SALT * len(events))
    return [
        Seal(fingerprint(event), salts[SALT * n : SALT * (n + 1)]) for n, event in enumerate(events)
    ]


def origin(key: Key, log: str, after: int = 0, base: bytes = b"") -> bytes:
    """Return the start value of a log's chain, used as the link before the first event. For a fork,
    `after` and `base` are the number and the link of the event at which it left its parent. If the
    first events of a log have no links, `after` is the number of the last event without a link."""
    named = _encode(("holdfast", 1, key.tenant, key.session, key.thread, log, after))
    return _sha256(named + base).digest()


def anew(log: str, after: int) -> bytes:
    """Return the start value for a chain that begins again after event `after`, because that event
    has no link. The value does not include the key of the log, because a deleted log whose events a
    fork still shares has no key."""
    return origin(Key("", "", ""), log, after)


def linked(
    row: Row, events: Sequence[Event], given: Sequence[Seal]
) -> tuple[list[bytes], str | None]:
    """Compute the links of the next events of a log. Returns the bytes to store with each event,
    and the link of the last event."""
    if not events:
        return [], row.link
    link = _read(row.link) or anew(row.log, row.head)
    kept = []
    for event, (hash, salt) in zip(events, given, strict=True):
        link = _link(link, _mark(hash, salt), event)
        kept.append(b"w" + salt + link)
    return kept, link.hex()


def _read(link: str | None) -> bytes:
    """Parse the link of a row; return empty bytes if there is none, or if it is damaged."""
    try:
        return bytes.fromhex(link or "")
    except ValueError:
        return b""


def _mark(hash: bytes, salt: bytes) -> bytes:
    return _sha256(salt + hash).digest()


def _link(before: bytes, mark: bytes, event: Event) -> bytes:
    return _sha256(before + mark + _encode(_envelope(event))).digest()


def erased(kept: bytes | None, hash: bytes, *, damaged: bool = False) -> bytes | None:
    """Return the bytes to store with an event after its data is erased. `hash` is the hash of the
    event with its data. With `damaged`, the event itself was altered, and its link is kept without
    a check."""
    if kept is None or damaged:
        return kept and b"x" + link_in(kept)
    if kept[:1] != b"w":
        return kept
    salt, link = kept[1 : 1 + SALT], kept[1 + SALT :]
    return b"e" + _mark(hash, salt) + link


def link_in(kept: bytes | None) -> bytes:
    """Return the link in the bytes that are stored with an event; empty if there is none."""
    return kept[-32:] if kept else b""


def ending(kept: bytes | None) -> str | None:
    """Return the link in the bytes that are stored with a log's last event, in hexadecimal; None if
    there is none."""
    return link_in(kept).hex() or None


def is_erased(kept: bytes | None) -> bool:
    """Return whether the bytes stored with an event show that its data was erased."""
    return kept is not None and kept[:1] in (b"e", b"x")


class LinkWalk:
    """Checks the links of a log event by event, and reports each event whose link does not match
    the events before it. If an older release wrote the log, its row has no link, and the chain may
    begin again after any number."""

    def __init__(
        self,
        row: Row,
        after: int,
        left: bytes | None = b"",
        *,
        deleted: str | None = None,
        lossy: bool = False,
    ) -> None:
        """Prepare to check the events after number `after`. These are the log's own events, or
        events of the log `deleted` that this log shares. `left` is the bytes stored with the event
        at which a fork left its parent; None if they are unknown. With `lossy`, a placeholder may
        replace a lost event."""
        self._row = row
        self._log, self._lossy = deleted or row.log, lossy
        begun = None if left is None else origin(row.key, row.log, after, link_in(left))
        self._before = begun
        self._linked = False  # whether the last event had a link
        self._bare = False  # whether the last event had no link, and this was not reported

    def look(self, event: Event, hash: bytes, kept: bytes | None) -> list[Damage]:
        """Check the next event, whose data matches its hash. Returns the problem, if there is
        one."""
        before, was_linked = self._before, self._linked
        self.skip(kept)
        if kept is None:
            return self._look_at_bare(event, was_linked)
        sound = self._follows(before, event, hash, kept)
        return [] if sound else [self._found("broken", BROKEN, event.seq)]

    def _look_at_bare(self, event: Event, was_linked: bool) -> list[Damage]:
        if self._lossy and is_lost(event):
            self._bare = True
            return []
        if not (was_linked and is_blank(event)):
            self._before = b""  # a new chain begins after it
        self._bare = not was_linked
        return [self._found("unlinked", BARE, event.seq)] if was_linked else []

    def _follows(self, before: bytes | None, event: Event, hash: bytes, kept: bytes) -> bool:
        if kept[:1] == b"x" and len(kept) == 1 + 32 and is_blank(event):
            return True
        mark = _mark_in(kept, event, hash)
        if mark is None or before is None:
            return mark is not None
        again = anew(self._log, event.seq - 1)
        return link_in(kept) in (_link(before, mark, event), _link(again, mark, event))

    def skip(self, kept: bytes | None) -> None:
        """Skip an unreadable event, which is reported separately."""
        self._before, self._linked = link_in(kept) or None, kept is not None
        self._bare = False

    def miss(self) -> None:
        """Skip missing events, which are reported separately."""
        self.skip(None)

    def end(self) -> list[Damage]:
        """Check that the last event matches the link in the log's row. Returns the problem, if
        there is one."""
        link = self._row.link
        ends = not self._bare and (not self._before or _read(link) == self._before)
        sound = link is None or ends
        return [] if sound else [self._found("broken", ENDED, self._row.head)]

    def _found(self, problem: Literal["broken", "unlinked"], detail: str, seq: int) -> Damage:
        return Damage(problem=problem, detail=detail, key=self._row.key, seq=seq)


def _mark_in(kept: bytes, event: Event, hash: bytes) -> bytes | None:
    if kept[:1] == b"w" and len(kept) == 1 + SALT + 32:
        return _mark(hash, kept[1 : 1 + SALT])
    if kept[:1] == b"e" and len(kept) == 1 + 32 + 32 and is_blank(event):
        return kept[1:33]
    return None


def is_lost(event: Event) -> bool:
    """Return whether an event is the placeholder for an event that was lost together with its
    link."""
    return (event.kind, event.id) == (LOST, f"damaged:{event.seq}") and is_blank(event)


def is_blank(event: Event) -> bool:
    try:
        msgspec.json.decode(event.data, type=_Blank)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


class _Blank(msgspec.Struct, forbid_unknown_fields=True):
    erased: str
