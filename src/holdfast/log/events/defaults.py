"""Adds default values to event data, and removes them.

A log omits fields that have their default value. A reader without the payload types, such as an
HTTP client or `jq`, does not know the defaults. So `complete` is applied to all data that leaves
the library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Raw
from msgspec.structs import FieldInfo, fields, replace

from .envelope import Event
from .payloads import KINDS
from .session_payloads import Payload

_ERASED = "erased"  # the only field of the data of an event that was erased


class PayloadShape(NamedTuple):
    """The optional fields of a payload type, with the encoded default of each, and the fields that
    contain other payloads, with the shape of each."""

    defaults: dict[str, Raw]
    nested: dict[str, PayloadShape]


Change: TypeAlias = Callable[[Raw, PayloadShape], Raw]


def complete(event: Event) -> Event:
    """Return the event with the defaults of its kind added to its data. Existing fields, including
    unknown ones, are kept. An erased event, or an event of an unknown kind or version, is returned
    unchanged."""
    return _changed(event, _filled)


def compact(event: Event) -> Event:
    """Return the event as a log stores it, without the fields that have their default value; the
    reverse of `complete`. Used by folds that count bytes."""
    return _changed(event, _emptied)


def _changed(event: Event, change: Change) -> Event:
    if event.kind not in KINDS or event.v != 1:
        return event
    data = change(event.data, shape_of(KINDS[event.kind]))
    return event if data is event.data else replace(event, data=data)


@cache
def shape_of(payload: type[Payload]) -> PayloadShape:
    """Return the optional and the nested fields of a payload type."""
    hints = get_type_hints(payload)
    optional = [one for one in fields(payload) if not one.required]
    return PayloadShape(
        defaults={one.encode_name: Raw(msgspec.json.encode(_default(one))) for one in optional},
        nested={
            one.encode_name: shape_of(inner)
            for one in fields(payload)
            for inner in _payloads(hints[one.name])
        },
    )


def _default(field: FieldInfo) -> Any:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()


def _payloads(hint: Any) -> list[type[Payload]]:
    """Return the payload types in the type of a field: one if the field contains a payload or a
    list of payloads, else none."""
    found = [hint, *get_args(hint)]
    return [one for one in found if isinstance(one, type) and issubclass(one, Payload)]


def _filled(data: Raw, shape: PayloadShape) -> Raw:
    try:
        found = msgspec.json.decode(data, type=dict[str, Raw])
    except msgspec.MsgspecError:  # not an object, so no payload of this kind
        return data
    missing = shape.defaults.keys() - found.keys()
    within = shape.nested.keys() & found.keys()
    if (_ERASED in found and _ERASED not in shape.defaults) or not (missing or within):
        return data
    for name in within:
        found[name] = _each(found[name], shape.nested[name], _filled)
    added = {name: text for name, text in shape.defaults.items() if name in missing}
    return Raw(msgspec.json.encode(found | added))


def _emptied(data: Raw, shape: PayloadShape) -> Raw:
    try:
        found = msgspec.json.decode(data, type=dict[str, Raw])
    except msgspec.MsgspecError:
        return data
    for name in shape.nested.keys() & found.keys():
        found[name] = _each(found[name], shape.nested[name], _emptied)
    kept = {name: text for name, text in found.items() if text != shape.defaults.get(name)}
    return Raw(msgspec.json.encode(kept))


def _each(data: Raw, shape: PayloadShape, change: Change) -> Raw:
    if bytes(memoryview(data)[:1]) != b"[":
        return change(data, shape)
    items = msgspec.json.decode(data, type=list[Raw])
    return Raw(msgspec.json.encode([change(item, shape) for item in items]))
