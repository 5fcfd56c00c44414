"""Cursors: a position in one log, encoded as text. A cursor contains the incarnation of the log, so
that a log that was deleted and created again is not mistaken for the old one."""

from __future__ import annotations

from ..errors import InvalidValue
from ..log.codec import LARGEST

START = "0"  # before the first event of any log
LONGEST = 600  # characters


def cursor(log: str, seq: int) -> str:
    """Return a cursor for the position after event `seq` of a log."""
    return f"{log}.{seq}"


def read_cursor(text: str) -> tuple[str | None, int]:
    """Parse a cursor into its log and event number. A plain number has no log."""
    log, _, number = text.rpartition(".")
    short = len(text) <= LONGEST and number.isascii() and number.isdigit() and len(number) <= 16
    if not short or (("." in text) and not log) or int(number) > LARGEST:
        raise InvalidValue(
            field="after",
            problem="is not a cursor",
            remedy="pass the id of an event of the stream unchanged, or omit it",
        )
    return log or None, int(number)
