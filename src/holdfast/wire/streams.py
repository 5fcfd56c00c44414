"""The server-sent events of a stream: their names, and the data of those that are not stored in the
log."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ..log.catalog import Row
from ..values.result import Result
from .failures import Failure

NOW = "now"  # used as a cursor: only new events
EVENT = "event"  # an event of the log; its id is a cursor
DELTA = "delta"  # text of an unfinished message; has no id
CAUGHT_UP = "caught_up"  # between past and live events
RESYNC = "resync"  # the cursor does not belong to this log
TROUBLE = "trouble"  # a failure that is not recorded in the log
END = "end"  # the server closes the stream on purpose

ROW = "row"  # of a stream of list changes: a session with new activity
PENDING = "pending"  # of a stream of list changes: the inbox has changed

EndReason: TypeAlias = Literal[
    "finished", "waiting", "closed", "deleted", "moved", "shutdown", "resync"
]


class Caught(Struct, frozen=True, kw_only=True):
    """Separates past events from live events in a stream: all events up to `head` were already in
    the log, the following events are live."""

    log: str
    head: int
    cursor: str


class Resync(Struct, frozen=True, kw_only=True):
    """Sent if the client's cursor does not belong to this log. The client should start again with
    this log, whose last event is `head`."""

    log: str
    head: int
    cursor: str
    reason: str


class End(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last item of a stream. Reading can continue after `cursor`. `result` is the result of the
    followed message, `error` the error that ended the stream."""

    reason: EndReason
    cursor: str | None = None
    result: Result | None = None
    error: Failure | None = None


class InboxChanged(Struct, frozen=True, kw_only=True):
    """The pending items have changed. `items` is their number now, or with `more` a lower bound."""

    items: int
    more: bool = False


class ListResync(Struct, frozen=True, kw_only=True):
    """Sent if changes of a list were left out. The client should read the list again."""

    reason: str


ListChange: TypeAlias = Row | InboxChanged | ListResync
