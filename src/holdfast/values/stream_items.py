"""The items of a stream: events of the log, streaming text (`Delta`), `CaughtUp` and `Trouble`. An
event with large data may be replaced by a stub, which contains only the size of the data."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..log.events import Event
from .delta import Delta

LARGE = 64 << 10  # listeners buffer events with more bytes of data as stubs; see `info().apart`
_APART, _STUB = b'{"apart":', 256  # the prefix of a stub's data, and its largest size in bytes


class CaughtUp(Struct, frozen=True):
    """A marker in a stream: the items before it are stored events, the items after it are live.

    ```python
    async for item in session.subscribe(after=0):
        if isinstance(item, CaughtUp):
            print("everything that was missed is here")
    ```
    """

    log: str
    head: int


class Trouble(Struct, frozen=True, tag="trouble"):
    """A failure that is not recorded in the log, because the operation may be retried or
    abandoned.

    See [streaming](../streaming.md).
    """

    code: str
    problem: str


Item: TypeAlias = Event | Delta | CaughtUp | Trouble


def item_size(item: Item) -> int:
    """Return the approximate size of an item in bytes."""
    if isinstance(item, Event):
        return 256 + len(item.data)
    return 64 + (len(item.text) if isinstance(item, Delta) else 0)


def set_apart(event: Event) -> Event:
    """Return the event, or a stub without its data if the data is large. The stub is like a stub
    from `read(inline=False)`, but without the hash, which would be expensive to compute."""
    if len(event.data) <= LARGE:
        return event
    return replace(event, data=Raw(_APART + b'{"size":%d}}' % len(event.data)))


def is_stub(event: Event) -> bool:
    """Return whether an event looks like a stub, so that its data must be read from the log. A
    small payload can look like a stub; then the log returns the same data."""
    return len(event.data) < _STUB and bytes(event.data).startswith(_APART)


def stub_size(event: Event) -> int:
    """Return the size in bytes of the data that a stub replaces."""
    try:
        return msgspec.json.decode(event.data, type=_Stub).apart.size
    except msgspec.MsgspecError:
        return len(event.data)  # not a stub


class _Apart(Struct):
    size: int


class _Stub(Struct):
    apart: _Apart
