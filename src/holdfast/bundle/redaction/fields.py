"""What each field of each payload is: an allow-list, over every kind of event.

What is not listed here is content. Numbers, booleans and words from a fixed list are structure
by their type; of texts only those that are named here are ids or names.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any, Literal, TypeAlias

from msgspec.structs import fields

from ...log import events as ev
from ...log.events import ids

What: TypeAlias = Literal[
    "keep",  # a number, a word from a list: structure, as it is
    "id",  # ours, or a provider's: pairs one event with another
    "hash",  # of content that is elsewhere
    "name",  # that a program gave: of a tool, a model, a mode
    "names",  # an object with such names, and structure under them
    "person",  # who did it, and where to reach them
    "driver",  # the process that did it: its host and its number
    "parts",  # of a message; those that name a blob are structure
    "refs",  # what a result points at
    "shape",  # the name and the JSON Schema of an answer
    "numbered",  # texts by the number of an event
    "text",  # content, in words
    "value",  # content, as JSON
]

# How ids begin and end that derive from another one: see docs/formats/log.md.
BEFORE = rf"(?:(?:{'|'.join(ids.DERIVED)}):)*"
BEHIND = rf"(?:{ids.CHILD}|:\d{{1,9}})*"

_IDS = {"id", "call", "item", "parent", "provider_id", "run", "key"}
_NAMES = {"agent", "model", "mode", "left", "name", "code", "on", "tool", "category", "surface"}

# What the name of a field does not say.
_OWN: dict[tuple[type[ev.Payload], str], What] = {
    (ev.Call, "fingerprint"): "hash",
    (ev.ContextBuilt, "hash"): "hash",
    (ev.SessionCreated, "user"): "person",
    (ev.SurfaceAttached, "address"): "person",
    (ev.SurfaceDetached, "address"): "person",
    (ev.PendingOpened, "assignee"): "person",
    (ev.MessageCompleted, "reason"): "name",
    (ev.MessageInterrupted, "reason"): "name",
    (ev.RunWaiting, "reason"): "name",
    (ev.RunStarted, "driver"): "driver",
    (ev.RunResumed, "driver"): "driver",
    (ev.GrantGiven, "driver"): "driver",
    (ev.ToolStarted, "by"): "person",
    (ev.MessageReceived, "parts"): "parts",
    (ev.MessageReceived, "output"): "shape",
    (ev.ToolFinished, "refs"): "refs",
    (ev.QueueChanged, "texts"): "numbered",
    (ev.ContextRemoved, "ids"): "id",
}


@functools.cache
def listed(payload: type[ev.Payload]) -> dict[str, What | type[ev.Payload]]:
    """What each field is; the payload's type where one stands in it, or a list of them."""
    return {
        field.encode_name: _what(payload, field.name, hint)
        for field, hint in zip(fields(payload), _hints(payload), strict=True)
    }


def _hints(payload: type[ev.Payload]) -> list[Any]:
    return [field.type for field in fields(payload)]


def _what(payload: type[ev.Payload], name: str, hint: Any) -> What | type[ev.Payload]:
    if (own := _OWN.get((payload, name))) is not None:
        return own
    inner = _inner(hint)
    if isinstance(inner, type) and issubclass(inner, ev.Payload):
        return inner
    if _structure(hint):
        return "keep"
    if _named(hint):
        return "names"
    if inner is str and name in _IDS:
        return "id"
    if inner is str and name in _NAMES:
        return "name"
    return "text" if inner is str else "value"


def _inner(hint: Any) -> Any:
    """The type without `| None`, of a list that of its items."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        some = [each for each in typing.get_args(hint) if each is not type(None)]
        return _inner(some[0]) if len(some) == 1 else Any
    if typing.get_origin(hint) is list:
        return _inner(typing.get_args(hint)[0])
    return hint


def _structure(hint: Any) -> bool:
    inner = _inner(hint)
    return inner in (int, float, bool) or typing.get_origin(inner) is Literal


def _named(hint: Any) -> bool:
    """Whether it is an object with structure under names that a program gave."""
    inner = _inner(hint)
    return typing.get_origin(inner) is dict and _structure(typing.get_args(inner)[1])
