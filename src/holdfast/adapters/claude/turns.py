"""A conversation as numbered turns, for engines that cannot resume a session and receive the
history in the prompt.

A turn is an entry of type `ca_user` or `ca_assistant` with a number and text. Its uuid is derived
from type, number and text, so that a turn that is written twice is stored once. Pure.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

Role: TypeAlias = Literal["user", "assistant"]

SPEAKERS = {"ca_user": "User", "ca_assistant": "Assistant"}


def turn(role: Role, index: int, text: str, timestamp: str) -> dict[str, Any] | None:
    """Return the entry for a turn, or None if the text is empty. `timestamp` is ISO 8601.

    See [Claude Agent SDK](../claude.md).
    """
    if not text:
        return None
    digest = hashlib.sha256(f"{role}\0{index}\0{text}".encode("utf-8", "surrogatepass"))
    return {
        "type": f"ca_{role}",
        "uuid": str(uuid.UUID(digest.hexdigest()[:32])),
        "turnIndex": index,
        "text": text,
        "timestamp": timestamp,
    }


def next_turn(entries: Iterable[Any] | None) -> int:
    """Return the number of the next turn. Entries without a number are ignored.

    See [Claude Agent SDK](../claude.md).
    """
    return max((_index(entry) for entry in entries or () if _index(entry) >= 0), default=-1) + 1


def history(entries: Iterable[Any] | None) -> str | None:
    """Return the turns so far, as text for a system prompt; None if there are no turns.

    They are sorted by number. Turns with the same number stay in the order of the entries.

    See [Claude Agent SDK](../claude.md).
    """
    turns = [entry for entry in entries or () if _index(entry) >= 0 and _speaks(entry)]
    if not turns:
        return None
    lines = [f"{SPEAKERS[entry['type']]}: {entry['text']}" for entry in sorted(turns, key=_index)]
    return "The conversation so far:\n\n" + "\n\n".join(lines)


def _index(entry: Any) -> int:
    index = entry.get("turnIndex") if isinstance(entry, dict) else None
    return index if isinstance(index, int) and not isinstance(index, bool) else -1


def _speaks(entry: dict[str, Any]) -> bool:
    return (
        entry.get("type") in SPEAKERS and isinstance(entry.get("text"), str) and entry["text"] != ""
    )
