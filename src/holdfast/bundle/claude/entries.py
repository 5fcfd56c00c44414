"""Entries of Claude Code and Claude Agent SDK transcripts: encoded as lines of JSON, and as events
that store them unchanged. Pure.

The data of an event is the entry. Some JSON that Python can read is rejected by stores: lone
surrogates (as in a truncated string), numbers such as 1e400, deep nesting. Such an entry is stored
as a string, in an event of another kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from ...errors import InvalidValue
from ...log.codec import too_deep
from ...log.events import NewEvent, to_json

Entry: TypeAlias = dict[str, Any]

ENTRY = "claude.entry"
TEXT = "claude.entry.text"  # the entry is JSON text in the string `text`
KINDS = (ENTRY, TEXT)
METADATA = "agent_metadata"  # the type of an entry that describes a sub-agent
DEEPEST = 500  # nesting levels that every Python version can parse


class EntryText(msgspec.Struct, frozen=True):
    """The data of an event of kind `TEXT`."""

    text: str


def parse_line(line: bytes) -> Entry | str:
    """Return the entry in a line, or the reason why the line is invalid."""
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return "is not UTF-8"
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({error})"
    return found if isinstance(found, dict) else "is not a JSON object"


def to_line(entry: Any) -> bytes:
    """Encode an entry as Claude Code writes it, without a line ending."""
    text = json.dumps(entry, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(entry, separators=(",", ":")).encode()


def to_lines(entries: Iterable[Any]) -> bytes:
    """Encode a transcript with one entry per line."""
    return b"".join(to_line(entry) + b"\n" for entry in entries)


def is_metadata(entry: Any) -> bool:
    """Return whether an entry describes a sub-agent. On disk it is a `.meta.json` file, not a
    line."""
    return isinstance(entry, dict) and entry.get("type") == METADATA


def encode(entry: Any) -> tuple[str, Raw]:
    """Return the kind and the data of the event that stores an entry. Raises `InvalidValue` if the
    entry is not JSON.
    """
    try:
        data = to_json(entry)
        if not too_deep(bytes(data)):
            return ENTRY, data
    except InvalidValue:
        pass
    try:
        text = json.dumps(entry, separators=(",", ":"))
        data = to_json(EntryText(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(
            field="entries",
            problem=f"contain a value that cannot be encoded as JSON ({error})",
            remedy="use JSON values",
        ) from error
    if too_deep(text.encode("utf-8", "surrogatepass"), DEEPEST):
        raise InvalidValue(
            field="entries",
            problem=f"are nested deeper than {DEEPEST} levels",
            remedy="flatten them",
            limit=DEEPEST,
        )
    return TEXT, data


def decode(event: NewEvent) -> Any:
    """Return the entry that an event stores; each call returns a new object."""
    if event.kind == TEXT:
        return json.loads(event_text(event))
    return msgspec.json.decode(event.data)


def event_text(event: NewEvent) -> str:
    """Return the JSON text in an event whose data is an `EntryText`."""
    return msgspec.json.decode(event.data, type=EntryText).text


def is_entry(event: NewEvent) -> bool:
    """Return whether an event stores an entry that was not erased."""
    if event.kind not in KINDS:
        return False
    erased = bytes(event.data).startswith(b'{"erased":')
    return not erased or list(msgspec.json.decode(event.data)) != ["erased"]
