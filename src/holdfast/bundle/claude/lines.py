"""The lines of a Claude Code transcript: which of them make up the conversation. Pure.

A transcript is a tree: each line names the one before it. Where somebody went back and began anew,
the conversation is the branch that the last line is on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from ...log.codec import LIMITS, too_deep

Entry = dict[str, Any]

SPOKEN = ("user", "assistant")
DEEPEST = LIMITS.depth - 8


class Line(Struct, frozen=True):
    """One line: its number, and the object in it. `changed`: it held what is no Unicode, or numbers
    that are none, and something else stands in their place."""

    number: int
    entry: Entry
    changed: bool = False


class Bad(Struct, frozen=True):
    """A line that holds no object, and why."""

    number: int
    problem: str


def parsed(text: bytes) -> tuple[list[Line], list[Bad]]:
    """The lines of a file; a last one that was cut off is a bad one."""
    lines: list[Line] = []
    bad: list[Bad] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                bad.append(Bad(number, "is no JSON object"))
                continue
            if too_deep(line, DEEPEST):
                bad.append(Bad(number, f"is nested deeper than {DEEPEST} levels"))
                continue
            plain = _plain(value)
            lines.append(Line(number, plain, changed=plain != value))
        except (ValueError, RecursionError):
            bad.append(Bad(number, "is not JSON"))
    return lines, bad


def _plain(value: Any) -> Any:
    """The value with nothing in it that no store takes: halves of surrogate pairs, NaN, and
    numbers beyond 64 bits, which become text."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_plain(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value


def unique(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """The first line of each uuid, and the others."""
    seen: set[str] = set()
    first: list[Line] = []
    again: list[Line] = []
    for line in lines:
        id = line.entry.get("uuid")
        (again if isinstance(id, str) and id in seen else first).append(line)
        seen.update([id] if isinstance(id, str) else [])
    return first, again


def apart(lines: Sequence[Line]) -> tuple[list[Line], dict[str, list[Line]]]:
    """The lines of the session itself, and those of sub-agents that older releases wrote among
    them, each by its agent or by the number of its first line."""
    mine: list[Line] = []
    others: dict[str, list[Line]] = {}
    agents: dict[str, str] = {}  # the sub-agent of a line, by the line's uuid
    for line in lines:
        entry = line.entry
        if entry.get("isSidechain") is not True:
            mine.append(line)
            continue
        named, before = entry.get("agentId"), entry.get("parentUuid")
        known = agents.get(before) if isinstance(before, str) else None
        name = named if isinstance(named, str) and named else known or f"line-{line.number}"
        others.setdefault(name, []).append(line)
        if isinstance(id := entry.get("uuid"), str):
            agents[id] = name
    return mine, others


def is_spoken(entry: Entry) -> bool:
    """Whether a line is somebody's message, or the result of a call."""
    return entry.get("type") in SPOKEN and isinstance(entry.get("message"), dict)


def conversation(lines: Sequence[Line]) -> set[int]:
    """The numbers of the lines that are in the conversation: those on the way to the last message,
    with the other lines of the same answers and the results of the calls in them."""
    spoken = [line for line in lines if is_spoken(line.entry)]
    linked = {uuid: line for line in lines if isinstance(uuid := line.entry.get("uuid"), str)}
    if not any("parentUuid" in line.entry for line in spoken):
        return {line.number for line in spoken}
    path = _way(spoken[-1], linked)
    answers = {answer(line.entry) for line in spoken if line.number in path} - {None}
    path |= {line.number for line in spoken if answer(line.entry) in answers}
    calls = {id for line in spoken if line.number in path for id in _calls(line.entry)}
    path |= {line.number for line in spoken if calls.intersection(_results(line.entry))}
    return {line.number for line in spoken if line.number in path}


def _way(last: Line, linked: dict[str, Line]) -> set[int]:
    path: set[int] = set()
    line: Line | None = last
    while line is not None and line.number not in path:
        path.add(line.number)
        # Behind a compaction the tree begins anew, and says where it went on.
        before = line.entry.get("parentUuid") or line.entry.get("logicalParentUuid")
        line = linked.get(before) if isinstance(before, str) else None
    return path


def answer(entry: Entry) -> str | None:
    """What the lines of one answer have in common."""
    id = entry["message"].get("id") if entry.get("type") == "assistant" else None
    return id if isinstance(id, str) else None


def blocks(entry: Entry) -> list[Any]:
    """The content of a message as blocks."""
    content = entry["message"].get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _calls(entry: Entry) -> Iterable[str]:
    return [b["id"] for b in _of(entry, "tool_use") if isinstance(b.get("id"), str)]


def _results(entry: Entry) -> Iterable[str]:
    found = [b.get("tool_use_id") for b in _of(entry, "tool_result")]
    return [id for id in found if isinstance(id, str)]


def _of(entry: Entry, type: str) -> list[dict[str, Any]]:
    return [b for b in blocks(entry) if isinstance(b, dict) and b.get("type") == type]


def at(entry: Entry) -> int | None:
    """When a line was written, in ms."""
    text = entry.get("timestamp")
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if moment is None:
        return None
    return max(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000), 0)
