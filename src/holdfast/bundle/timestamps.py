"""Converts times between milliseconds since the epoch and RFC 3339. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(ms: int, *, invalid: str = "9999-12-31T23:59:59.999Z") -> str:
    """Format a time as UTC with milliseconds; `invalid` for a time outside the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return invalid
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def from_rfc3339(text: Any) -> int | None:
    """Parse ISO 8601 text, or seconds since the epoch as text; None for other values. Times before
    the epoch become 0.
    """
    if not isinstance(text, str):
        return None
    if re.fullmatch(r"\d{1,11}", text):
        return int(text) * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - _EPOCH) // timedelta(milliseconds=1), 0)
