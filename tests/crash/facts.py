"""Events and bytes whose whole content follows from their id, so that whoever reads one can
tell whether it is whole without having been there when it was written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from holdfast import Event, NewEvent

# The last letter of an id says how large the event is; `l` is kept apart by the store.
SIZES = {"s": (1, 400), "m": (2_000, 60_000), "l": (70_000, 200_000)}
KINDS = ("note.made", "message.received", "label.added")


def text_of(id: str) -> str:
    digest = hashlib.sha256(id.encode()).digest()
    low, high = SIZES[id[-1]]
    size = low + int.from_bytes(digest[:6], "big") % (high - low)
    return (digest.hex() * (size // 64 + 1))[:size]


def fact(id: str) -> NewEvent:
    """The event that has this id."""
    text = text_of(id)
    kind = KINDS[len(text) % len(KINDS)]
    payload = {"text": text}
    if kind == "label.added":
        payload["label"] = f"l{len(text) % 7}"
    return NewEvent.of(kind, payload, id=id, actor=f"by {id}")


def blob(name: str) -> bytes:
    return text_of(name).encode()


def past(ids: Sequence[str]) -> list[Event]:
    """Facts as they stood in some log."""
    events = []
    for seq, id in enumerate(ids, 1):
        new = fact(id)
        events.append(
            Event(kind=new.kind, data=new.data, id=id, actor=new.actor, seq=seq, at=1_000_000 + seq)
        )
    return events


def erased(event: Event) -> bool:
    return len(event.data) < 100 and set(event.json()) == {"erased"}


def whole(event: Event) -> bool:
    """Whether the event is what its id says, or was erased on demand."""
    wanted = fact(event.id)
    return (
        (erased(event) or event.data == wanted.data)
        and (event.kind, event.actor) == (wanted.kind, wanted.actor)
        and (event.v, event.run, event.cause) == (1, None, None)
    )
