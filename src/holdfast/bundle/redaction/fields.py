"""Defines the role of each field of each payload in a redaction, such as content, id or name, for
every kind of event.

Fields that are not listed are content. Numbers, booleans and literals are structure because of
their type. Strings are content unless they are listed here as ids or names.
"""

from __future__ import annotations

import functools
import typing
from typing import Any, Literal, TypeAlias

from msgspec.structs import fields

from ...log import events as ev
from ...log.events import ids
from ..type_check import without_none

What: TypeAlias = Literal[
    "keep",  # structure: a number, a literal
    "id",  # an id that links events, made by Holdfast or by a provider
    "hash",  # a hash of content that is stored elsewhere
    "name",  # the name of a tool, a model or a mode
    "names",  # an object with such names as keys, and structure as values
    "person",  # an actor, or an actor's address
    "driver",  # a process: its host and its number
    "parts",  # parts of a message; references to blobs are structure
    "refs",  # references in a result
    "shape",  # the name and the JSON Schema of an answer
    "numbered",  # texts by event number
    "text",  # content as text
    "value",  # content as JSON
]

# The role of a field, or the type of the payload in it.
Role: TypeAlias = What | type[ev.Payload]

# Prefixes and suffixes of derived ids: see docs/formats/log.md.
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
    (ev.RunStarted, "version"): "hash",
    (ev.RunResumed, "driver"): "driver",
    (ev.GrantGiven, "driver"): "driver",
    (ev.ToolStarted, "by"): "person",
    (ev.MessageReceived, "parts"): "parts",
    (ev.MessageReceived, "output"): "shape",
    (ev.MessageReceived, "thread"): "id",
    (ev.ToolFinished, "refs"): "refs",
    (ev.ToolFinished, "stored"): "parts",
    (ev.QueueChanged, "texts"): "numbered",
    (ev.ContextRemoved, "ids"): "id",
    (ev.TimerScheduled, "cron"): "name",
    (ev.TimerScheduled, "timezone"): "name",
}


@functools.cache
def listed(payload: type[ev.Payload]) -> dict[str, Role]:
    """Return the role of each field, or the type of its nested payload."""
    return {field.encode_name: _what(payload, field.name, field.type) for field in fields(payload)}


def _what(payload: type[ev.Payload], name: str, hint: Any) -> Role:
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
    """Return the type without `| None`; for a list, the type of its items."""
    inner = without_none(hint)
    return _inner(typing.get_args(inner)[0]) if typing.get_origin(inner) is list else inner


def _structure(hint: Any) -> bool:
    inner = _inner(hint)
    return inner in (int, float, bool) or typing.get_origin(inner) is Literal


def _named(hint: Any) -> bool:
    """Return whether the type is an object with names as keys and structure as values."""
    inner = _inner(hint)
    return typing.get_origin(inner) is dict and _structure(typing.get_args(inner)[1])
