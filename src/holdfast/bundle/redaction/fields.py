"""The role of each field of each payload: an allow-list for every kind of event.

Fields that are not listed are content. Numbers, booleans and literals are structure by their type;
of texts, only those listed here are ids or names.
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
    "keep",  # structure: a number, a literal
    "id",  # pairs events; ours, or a provider's
    "hash",  # of content that is stored elsewhere
    "name",  # of a tool, a model, a mode
    "names",  # an object with such names as keys, and structure as values
    "person",  # an actor, or an address of one
    "driver",  # a process: its host and its number
    "parts",  # of a message; references to blobs are structure
    "refs",  # references of a result
    "shape",  # the name and the JSON Schema of an answer
    "numbered",  # texts by the number of an event
    "text",  # content as text
    "value",  # content as JSON
]

# How ids begin and end that derive from another one: see docs/formats/log.md.
BEFORE = rf"(?:(?:{'|'.join(ids.DERIVED)}):)*"
BEHIND = rf"(?:{ids.CHILD}|:\d{{1,9}})*"

_IDS = {"id", "call", "item", "parent", "provider_id", "run", "key"}
_NAMES = {"agent", "model", "mode", "left", "name", "code", "on", "tool", "category", "surface"}

# Fields whose name does not determine the role.
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
    """The role of each field, or the type of a nested payload."""
    return {field.encode_name: _what(payload, field.name, field.type) for field in fields(payload)}


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
    """The type without `| None`; for a list, the type of its items."""
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
    """Whether it is an object with names as keys and structure as values."""
    inner = _inner(hint)
    return typing.get_origin(inner) is dict and _structure(typing.get_args(inner)[1])
