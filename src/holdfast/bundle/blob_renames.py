"""Replaces the hashes of redacted blobs in events: a blob whose content was redacted has a new
hash. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from ..log.events import Event, to_json
from .format import Blob


def renamed(event: Event, moved: dict[str, Blob]) -> Event:
    """Return the event with the new hashes and sizes of redacted blobs. `moved` has the new blobs
    by their old hashes.
    """
    data = bytes(event.data)
    if not any(name.encode() in data for name in moved):
        return event
    return replace(event, data=to_json(_value(msgspec.json.decode(data), moved)))


def _value(value: Any, moved: dict[str, Blob]) -> Any:
    if isinstance(value, list):
        return [_value(item, moved) for item in value]
    if not isinstance(value, dict):
        return moved[value].sha256 if isinstance(value, str) and value in moved else value
    found = {name: _value(item, moved) for name, item in value.items()}
    blob = moved.get(str(value.get("sha256")))
    return {**found, "size": blob.size} if blob is not None and "size" in found else found
