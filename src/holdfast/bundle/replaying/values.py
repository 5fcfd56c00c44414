"""What a replay says, and how an event that came is compared with the one that was recorded.

Ids, times and what an answer cost are no part of the comparison. Where the recorded text was
replaced when the bundle was made, only what was left of it is compared. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from ...log.events import KINDS, Event, Key, NewEvent
from ...models.port import ModelCall
from ..redaction.manifest import Mode

Stopped: TypeAlias = Literal["end", "diverged", "prompt", "no_answer", "waiting", "erased"]

PLACEHOLDER = re.compile(r"\[(?:redacted|withheld)(?::[^\]\s]*)*\]")
SHOWN = 2_000  # characters of a text in a report
MISSING = "(nothing)"
MOST = 100  # divergences that are told


class Divergence(Struct, frozen=True, kw_only=True):
    """Something that came otherwise than it was recorded. `step` counts the model calls of the
    thread, `seq` is the number of the recorded event; `path` leads to the difference in it."""

    thread: str
    step: int
    seq: int | None
    kind: str
    path: str
    recorded: Any
    came: Any
    why: str = ""


class Replayed(Struct, frozen=True, kw_only=True):
    """What a replay came to.

    `same` means that all that was recorded came again. `first` is the first divergence, `others`
    are those behind it, where the replay went on. `steps` counts model calls, `compared` the
    events that came and were compared, `given` those that were handed in as recorded. `stopped`
    says why it ended; `asked` is what a model would have been asked there. `events` are those
    that came instead of the recorded ones, by thread. `mode` is that of the bundle.
    """

    same: bool
    first: Divergence | None = None
    others: list[Divergence] = []
    steps: int = 0
    compared: int = 0
    given: int = 0
    threads: int = 0
    stopped: Stopped = "end"
    asked: ModelCall | None = None
    events: dict[str, list[Event]] = {}
    mode: Mode = "local"


class Place(Protocol):
    """Where a replay is in one log."""

    key: Key
    steps: int


class Notes:
    """What is found while a replay goes on."""

    def __init__(self) -> None:
        self.divergences: list[Divergence] = []
        self.stopped: Stopped = "end"
        self.asked: ModelCall | None = None

    def add(
        self, track: Place, event: Event | None, path: str, recorded: Any, came: Any, why: str = ""
    ) -> None:
        """Write a divergence down."""
        if len(self.divergences) < MOST:
            self.divergences.append(
                Divergence(
                    thread=track.key.thread,
                    step=track.steps,
                    seq=event.seq if event is not None else None,
                    kind=event.kind if event is not None else MISSING,
                    path=path,
                    recorded=shown(recorded),
                    came=shown(came),
                    why=why,
                )
            )


# The fields of each kind that are compared; the rest are ids, times, or copies of what was given.
FIELDS: dict[str, tuple[str, ...]] = {
    "run.started": ("inputs", "model", "limits", "output"),
    "run.resumed": ("reason",),
    "run.waiting": ("reason",),
    "run.finished": ("status", "code"),
    "model.called": ("model", "step", "inputs"),
    "message.completed": ("text", "thought", "calls", "model"),
    "message.interrupted": ("text", "reason", "shown"),
    "message.received": ("text",),
    "context.built": ("hash", "system", "messages"),
    "tool.started": ("call", "name", "arguments", "by", "repeat", "tell"),
    "tool.finished": ("call", "outcome", "result", "content", "error", "code"),
    "pending.opened": ("what", "call", "title", "detail", "parked"),
    "pending.settled": ("id", "outcome"),
    "queue.changed": ("remove",),
}
CALL = ("name", "arguments", "fingerprint")


class Terms(Struct, frozen=True, kw_only=True):
    """What is compared: `whole` where the program's agent is there, otherwise what does not
    depend on it; `masked` where texts were replaced, `bare` where all were."""

    whole: bool = True
    masked: bool = False
    bare: bool = False
    swapped: bool = False

    def skips(self, kind: str, name: str) -> bool:
        if not self.whole and name in ("fingerprint", "by", "repeat", "tell", "limits", "detail"):
            return True
        if self.swapped and kind == "message.completed" and name == "model":
            return True
        # A hash is of the whole text, also where that was replaced in the bundle.
        if kind == "context.built" and name in ("system", "messages"):
            return True
        if self.bare and name in ("result", "content", "error"):
            return True
        return self.masked and name in ("title", "detail") and kind == "pending.opened"


def said(event: NewEvent) -> dict[str, Any]:
    """The payload as it was written; one that is no object is empty."""
    try:
        found = msgspec.json.decode(event.data)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def body(event: NewEvent) -> dict[str, Any]:
    """The same with its defaults."""
    found, kind = said(event), KINDS.get(event.kind)
    with suppress(msgspec.ValidationError):
        payload = msgspec.convert(found, kind) if kind is not None else None
        for name in payload.__struct_fields__ if payload is not None else ():
            found.setdefault(name, msgspec.to_builtins(getattr(payload, name)))
    return found


def differs(
    recorded: Event, came: NewEvent, ids: Mapping[str, str], terms: Terms
) -> tuple[str, Any, Any] | None:
    """The first difference: its path, and both sides. `ids` are the recorded ids of what is new
    here under another."""
    if recorded.kind != came.kind:
        return "kind", recorded.kind, came.kind
    old, new = body(recorded), body(came)
    for name in FIELDS.get(recorded.kind, ()):
        if terms.skips(recorded.kind, name):
            continue
        if name == "calls":
            found = next(_calls(old.get("calls") or [], new.get("calls") or [], terms), None)
        else:
            value = new.get(name)
            value = ids.get(value, value) if isinstance(value, str) else value
            found = next(_values(old.get(name), value, name), None)
        if found is not None:
            return found
    return None


def _calls(old: list[Any], new: list[Any], terms: Terms) -> Iterator[tuple[str, Any, Any]]:
    if [call.get("name") for call in old] != [call.get("name") for call in new]:
        yield "calls", [_call(call) for call in old], [_call(call) for call in new]
        return
    for n, (was, now) in enumerate(zip(old, new, strict=True)):
        for name in CALL:
            if not terms.skips("message.completed", name):
                yield from _values(was.get(name), now.get(name), f"calls[{n}].{name}")


def _call(call: dict[str, Any]) -> list[Any]:
    return [call.get("name"), call.get("arguments")]


def _values(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """The differences between two values, deepest path first in the order of the old."""
    if isinstance(old, dict) and any(map(masked, old)):
        return  # of which not even the names are left
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            yield from _values(old.get(name), new.get(name), f"{path}.{name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for n, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from _values(was, now, f"{path}[{n}]")
    elif not same(old, new):
        yield path, old, new


def same(old: Any, new: Any) -> bool:
    """Whether a value is what was recorded, as far as that can still be read."""
    if isinstance(old, str) and PLACEHOLDER.search(old) is not None:
        if not isinstance(new, str):
            return PLACEHOLDER.fullmatch(old) is not None
        return _fits(PLACEHOLDER.split(old), new)
    if isinstance(old, bool) != isinstance(new, bool):
        return False
    return bool(old == new)


def _fits(pieces: list[str], text: str) -> bool:
    """Whether a text has these pieces, in order, from its beginning to its end."""
    first, *middle, last = pieces
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def masked(value: Any) -> bool:
    """Whether something in a value was replaced."""
    if isinstance(value, str):
        return PLACEHOLDER.search(value) is not None
    if isinstance(value, dict):
        return any(map(masked, value)) or any(map(masked, value.values()))
    return isinstance(value, list) and any(map(masked, value))


def shown(value: Any) -> Any:
    """A value as a report has it: long texts are cut."""
    if isinstance(value, str) and len(value) > SHOWN:
        return f"{value[:SHOWN]}… ({len(value)} characters)"
    return value
