"""Cursors: a cursor is a position in a log, encoded as text. It contains the incarnation of the
log, so that it is not applied to a log that was deleted and created again."""

from __future__ import annotations

from ..errors import InvalidValue
from ..log.codec import LARGEST

START = "0"  # the cursor before the first event of any log
LONGEST = 600  # characters of a cursor


def cursor(log: str, seq: int) -> str:
    """Return a cursor for the position after event `seq` of a log."""
    return f"{log}.{seq}"


def read_cursor(text: str) -> tuple[str | None, int]:
    """Parse a cursor into the incarnation of its log and an event number. For a plain number, the
    log is None."""
    log, _, number = text.rpartition(".")
    short = len(text) <= LONGEST and number.isascii() and number.isdigit() and len(number) <= 16
    if not short or (("." in text) and not log) or int(number) > LARGEST:
        raise InvalidValue(
            field="after",
            problem="is not a cursor",
            remedy="pass the id of an event of the stream unchanged, or omit it",
        )
    return log or None, int(number)
