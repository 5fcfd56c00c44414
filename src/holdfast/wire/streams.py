"""Server-sent events of a stream: their names, and the data of events that are not in the log."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ..values.result import Result
from .failures import Failure

NOW = "now"  # in place of a cursor: only new events
EVENT = "event"  # an event of the log; its id is a cursor
DELTA = "delta"  # text in flight: message, offset, text; no id
CAUGHT_UP = "caught_up"  # between past and live events
RESYNC = "resync"  # the cursor does not belong to this log
TROUBLE = "trouble"  # a failure that is not in the log
END = "end"  # the server closes the stream on purpose

EndReason: TypeAlias = Literal[
    "finished", "waiting", "closed", "deleted", "moved", "shutdown", "resync"
]


class Caught(Struct, frozen=True, kw_only=True):
    """A marker in the stream: all events up to `head` are from the past, the following events are
    live."""

    log: str
    head: int
    cursor: str


class Resync(Struct, frozen=True, kw_only=True):
    """The cursor does not belong to this log. Start again with this log, whose last event is
    `head`."""

    log: str
    head: int
    cursor: str
    reason: str


class End(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of the stream; continue after `cursor`. `result` is the result of the message that
    was followed, `error` is the error that stopped the stream."""

    reason: EndReason
    cursor: str | None = None
    result: Result | None = None
    error: Failure | None = None
