"""A stream in words: the names of its events, and what those say that are not in the log."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ..values.result import Result
from .failures import Failure

NOW = "now"  # instead of a cursor: from here on
EVENT = "event"  # an event of the log; its id is a cursor
DELTA = "delta"  # text in flight: message, offset, text; no id
CAUGHT_UP = "caught_up"  # between what was and what happens
RESYNC = "resync"  # the cursor does not belong to this log
TROUBLE = "trouble"  # something went wrong beside the log
END = "end"  # the server closes the stream on purpose

EndReason: TypeAlias = Literal[
    "finished", "waiting", "closed", "deleted", "moved", "shutdown", "resync"
]


class Caught(Struct, frozen=True, kw_only=True):
    """All up to event `head` was history; what comes next is live."""

    log: str
    head: int
    cursor: str


class Resync(Struct, frozen=True, kw_only=True):
    """The cursor is unknown here: begin anew with this log, which is at `head`."""

    log: str
    head: int
    cursor: str
    reason: str


class End(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stream is over, on purpose; `cursor` is where to go on. `result` is what came of the
    input that was followed, `error` what stopped it."""

    reason: EndReason
    cursor: str | None = None
    result: Result | None = None
    error: Failure | None = None
