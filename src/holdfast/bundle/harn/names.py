"""Creates names and paths in Harn's format. Pure."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ...errors import InvalidValue

_OTHER = re.compile(r"[^A-Za-z0-9._-]")
_PLAIN = re.compile(r"[A-Za-z0-9_]*")
TOPIC = "observability.agent_events."
FILE_NAME = 200  # characters that every file system accepts


def sanitised(id: str) -> str:
    """Return the id with every character except ASCII letters, digits and `._-` replaced by `_`.
    Different ids can yield the same result.
    """
    return _OTHER.sub("_", id)


def topic(session_id: str) -> str:
    """Return the topic of a session's events in Harn's event log."""
    return TOPIC + sanitised(session_id)


def field_path(path: str, name: str) -> str:
    """Return the path of a field: `$.a`, or `$["a b"]` for a name that is not a plain word."""
    return f"{path}.{name}" if _PLAIN.fullmatch(name) else f"{path}[{json.dumps(name)}]"


def file_name(id: str) -> str:
    """Return a readable file name for an id. It contains no path separators."""
    name = sanitised(id)[:FILE_NAME]
    return f"_{name[1:]}" if name.startswith(".") else name


def record_path(folder: Path, run_id: str) -> Path:
    """Return the path of an imported run record in `folder`. Raises `InvalidValue` for an id that
    is not a plain file name, so that the path cannot leave the folder.

    See [other formats](../interchange.md).
    """
    if not run_id.strip() or file_name(run_id) != run_id:
        raise InvalidValue(
            field="source.run_record_id",
            problem=f"{run_id[:80]!r} is not a valid file name",
            remedy="write the record to a path of your choice",
        )
    return folder / f"{run_id}.json"
