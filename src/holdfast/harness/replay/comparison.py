"""Compares a replayed event with the recorded event. Pure. Ids, times and costs are not compared.
If a recorded text was partly redacted, only its other parts are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from ...log.events import KINDS, Event, NewEvent

PLACEHOLDER = re.compile(r"\[(?:redacted|withheld)(?::[^\]\s]*)*\]")

# The fields that are compared, by event kind. Other fields are ids, times, or copies of inputs.
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
    "tool.started": ("call", "name", "arguments", "by", "repeat", "tell", "probe"),
    "tool.probed": ("call", "outcome"),
    "tool.finished": ("call", "outcome", "result", "content", "error", "code", "stored"),
    "pending.opened": ("what", "call", "title", "detail", "parked"),
    "pending.settled": ("id", "outcome"),
    "queue.changed": ("remove",),
}
CALL = ("name", "arguments", "fingerprint")


class ComparisonTerms(Struct, frozen=True, kw_only=True):
    """What is compared. If `whole` is true, everything is compared, because the program's agent is
    available; otherwise only values that do not depend on the agent. `masked` means that some text
    was redacted, `bare` that all text was redacted. With `swapped`, another model answers, so the
    model's name is not compared."""

    whole: bool = True
    masked: bool = False
    bare: bool = False
    swapped: bool = False

    def skips(self, kind: str, name: str) -> bool:
        if not self.whole and name in (
            *("fingerprint", "by", "repeat", "tell", "probe", "limits", "detail"),
        ):
            return True
        if self.swapped and kind == "message.completed" and name == "model":
            return True
        # The hash covers the whole text, even if the text was redacted in the bundle.
        if kind == "context.built" and name in ("system", "messages"):
            return True
        if self.bare and name in ("result", "content", "error"):
            return True
        return self.masked and name in ("title", "detail") and kind == "pending.opened"


def payload_fields(event: NewEvent) -> dict[str, Any]:
    """Return the payload of an event as a dict; empty if it is not a JSON object."""
    try:
        found = msgspec.json.decode(event.data)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def body(event: NewEvent) -> dict[str, Any]:
    """Return the payload, with default values for missing fields."""
    found, kind = payload_fields(event), KINDS.get(event.kind)
    with suppress(msgspec.ValidationError):
        payload = msgspec.convert(found, kind) if kind is not None else None
        for name in payload.__struct_fields__ if payload is not None else ():
            found.setdefault(name, msgspec.to_builtins(getattr(payload, name)))
    return found


def differs(
    recorded: Event, came: NewEvent, ids: Mapping[str, str], terms: ComparisonTerms
) -> tuple[str, Any, Any] | None:
    """Return the first difference: its path and both values. `ids` maps new ids to recorded ids."""
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


def _calls(
    old: list[Any], new: list[Any], terms: ComparisonTerms
) -> Iterator[tuple[str, Any, Any]]:
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
    """Yield the differences between two values as (path, recorded value, new value)."""
    if isinstance(old, dict) and any(map(masked, old)):
        return  # even the names are redacted
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _values(old.get(name), new.get(name), f"{path}.{name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for n, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from _values(was, now, f"{path}[{n}]")
    elif not same(old, new):
        yield path, old, new


def same(old: Any, new: Any) -> bool:
    """Return whether a value equals the recorded value. Redacted parts match any text."""
    if isinstance(old, str) and PLACEHOLDER.search(old) is not None:
        if not isinstance(new, str):
            return PLACEHOLDER.fullmatch(old) is not None
        return _fits(PLACEHOLDER.split(old), new)
    if isinstance(old, bool) != isinstance(new, bool):
        return False
    return bool(old == new)


def _fits(pieces: list[str], text: str) -> bool:
    """Return whether a text consists of these pieces in order, with any text between them."""
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
    """Return whether a value contains the placeholder of a redacted text."""
    if isinstance(value, str):
        return PLACEHOLDER.search(value) is not None
    if isinstance(value, dict):
        return any(map(masked, value)) or any(map(masked, value.values()))
    return isinstance(value, list) and any(map(masked, value))
