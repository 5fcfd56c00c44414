"""Names, times and paths as Harn writes them. Pure."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ...errors import InvalidValue

_OTHER = re.compile(r"[^A-Za-z0-9._-]")
_PLAIN = re.compile(r"[A-Za-z0-9_]*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPIC = "observability.agent_events."
FILE_NAME = 200  # characters of a name that every file system takes


def sanitised(id: str) -> str:
    """The id with every character replaced by `_` that is not an ASCII letter, a digit or one of
    `._-`. Two ids can come to the same."""
    return _OTHER.sub("_", id)


def topic(session_id: str) -> str:
    """The topic of a session's events in Harn's event log."""
    return TOPIC + sanitised(session_id)


def rfc3339(ms: Any) -> str:
    """A time in ms as UTC with milliseconds; the epoch for what is no time."""
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except (OverflowError, TypeError, ValueError):
        moment = _EPOCH
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def from_rfc3339(text: Any) -> int | None:
    """A time in ms from RFC 3339, or from seconds since the epoch as text; None for others."""
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


def step(path: str, key: str) -> str:
    """The path of a field: `$.a`, or `$["a b"]` for a name that is no word."""
    return f"{path}.{key}" if _PLAIN.fullmatch(key) else f"{path}[{json.dumps(key)}]"


def file_name(id: str) -> str:
    """A name for a file that an id can be known by and that stays in its folder."""
    name = sanitised(id)[:FILE_NAME]
    return f"_{name[1:]}" if name.startswith(".") else name


def record_path(folder: Path, run_id: str) -> Path:
    """Where an imported run record belongs below `folder`. Refuses an id that is no plain name,
    so that none leads elsewhere."""
    if not run_id.strip() or file_name(run_id) != run_id:
        raise InvalidValue(
            field="source.run_record_id",
            problem=f"is {run_id[:80]!r}, which is no name for a file",
            remedy="say where to write it",
        )
    return folder / f"{run_id}.json"
