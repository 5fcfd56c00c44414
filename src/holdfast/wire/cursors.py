"""Cursors: a place in one log, as text. It names the log itself, so that one that was deleted
and begun again is never mistaken for the old one."""

from __future__ import annotations

from ..errors import InvalidValue
from ..log.codec import LARGEST

START = "0"  # before the first event, of whatever log is there
LONGEST = 600  # characters


def cursor(log: str, seq: int) -> str:
    """The place behind event `seq` of a log."""
    return f"{log}.{seq}"


def read_cursor(text: str) -> tuple[str | None, int]:
    """The log and the number that a cursor names; a bare number names no log."""
    log, _, number = text.rpartition(".")
    short = len(text) <= LONGEST and number.isascii() and number.isdigit() and len(number) <= 16
    if not short or (("." in text) and not log) or int(number) > LARGEST:
        raise InvalidValue(
            field="after",
            problem="is no cursor",
            remedy="pass the id of an event of the stream unchanged, or leave it out",
        )
    return log or None, int(number)
