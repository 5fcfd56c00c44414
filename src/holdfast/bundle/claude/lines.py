"""Parses the lines of a Claude Code transcript, and finds the lines that belong to the
conversation. Pure. A transcript is a tree: each line contains the id of its parent. If the user
went back to an earlier message and continued from there, the conversation is the branch that ends
in the last line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ...log.codec import LIMITS, too_deep
from ..json_values import as_str
from ..timestamps import from_rfc3339
from .entries import Entry, parse_line

MESSAGES = ("user", "assistant")
DEEPEST = LIMITS.depth - 8


class TranscriptLine(Struct, frozen=True):
    """One line: its number and its entry. `changed` is true if the line had lone surrogates or
    numbers that stores reject, and they were replaced.
    """

    number: int
    entry: Entry
    changed: bool = False

    def text(self, name: str) -> str | None:
        """Return a field of the entry if it is a string, else None."""
        return as_str(self.entry.get(name))

    @property
    def at(self) -> int | None:
        """The time at which the line was written, in ms."""
        return from_rfc3339(self.entry.get("timestamp"))

    @property
    def is_message(self) -> bool:
        """Whether the line is a message of the user or the model, or the result of a tool call."""
        return self.entry.get("type") in MESSAGES and isinstance(self.entry.get("message"), dict)

    @property
    def answer(self) -> str | None:
        """The id that all lines of one model answer share."""
        answers = self.entry.get("type") == "assistant"
        return as_str(self.entry["message"].get("id")) if answers else None

    @property
    def blocks(self) -> list[Any]:
        """The content of the message as blocks."""
        content = self.entry["message"].get("content")
        return as_blocks(content) if isinstance(content, (str, list)) else []

    def block_ids(self, type: str, name: str) -> set[str]:
        """Return one field of all blocks of a type."""
        found = (b.get(name) for b in self.blocks if is_block(b, type))
        return {id for id in found if isinstance(id, str)}


def as_blocks(content: Any) -> list[Any]:
    """Return content as a list of blocks; it may be a string, a block or a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else [content]


def is_block(value: Any, *types: str) -> bool:
    """Return whether a value is a block of one of these types."""
    return isinstance(value, dict) and value.get("type") in types


class BadLine(Struct, frozen=True):
    """A line without an entry, and the reason."""

    number: int
    problem: str


def parse_lines(text: bytes) -> tuple[list[TranscriptLine], list[BadLine]]:
    """Return the lines of a file, and the lines that cannot be read, for example a truncated last
    line.
    """
    lines: list[TranscriptLine] = []
    bad: list[BadLine] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        entry = parse_line(line)
        if isinstance(entry, str):
            bad.append(BadLine(number, entry))
        elif too_deep(line, DEEPEST):
            bad.append(BadLine(number, f"is nested deeper than {DEEPEST} levels"))
        else:
            plain = _plain(entry)
            lines.append(TranscriptLine(number, plain, changed=plain != entry))
    return lines, bad


def _plain(value: Any) -> Any:
    """Return the value without lone surrogates, and with NaN, infinities and integers beyond 64
    bits as text.
    """
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


def unique(lines: Sequence[TranscriptLine]) -> tuple[list[TranscriptLine], list[TranscriptLine]]:
    """Return the first line with each uuid, and the duplicates."""
    seen: set[str] = set()
    first: list[TranscriptLine] = []
    duplicates: list[TranscriptLine] = []
    for line in lines:
        uuid = line.text("uuid")
        (duplicates if uuid in seen else first).append(line)
        if uuid is not None:
            seen.add(uuid)
    return first, duplicates


def split_sidechains(
    lines: Sequence[TranscriptLine],
) -> tuple[list[TranscriptLine], dict[str, list[TranscriptLine]]]:
    """Separate the lines of the session from the lines of its sub-agents, which older releases
    wrote into the same file. A sub-agent is identified by its id, or by the number of its first
    line.
    """
    own: list[TranscriptLine] = []
    sidechains: dict[str, list[TranscriptLine]] = {}
    agents: dict[str | None, str] = {}  # the sub-agent of a line, by the line's uuid
    for line in lines:
        if line.entry.get("isSidechain") is not True:
            own.append(line)
            continue
        parent = agents.get(line.text("parentUuid")) if line.text("parentUuid") else None
        name = line.text("agentId") or parent or f"line-{line.number}"
        sidechains.setdefault(name, []).append(line)
        agents[line.text("uuid")] = name
    return own, sidechains


def conversation(lines: Sequence[TranscriptLine]) -> set[int]:
    """Return the numbers of the lines that belong to the conversation: the lines on the path to the
    last message, the other lines of the same answers, and the results of their calls.
    """
    messages = [line for line in lines if line.is_message]
    if not any("parentUuid" in line.entry for line in messages):
        return {line.number for line in messages}
    numbers = _path(messages[-1], lines)
    answers = {line.answer for line in messages if line.number in numbers} - {None}
    numbers |= {line.number for line in messages if line.answer in answers}
    calls: set[str] = set()
    for line in messages:
        if line.number in numbers:
            calls |= line.block_ids("tool_use", "id")
    numbers |= {n.number for n in messages if calls & n.block_ids("tool_result", "tool_use_id")}
    return numbers & {line.number for line in messages}


def _path(last: TranscriptLine, lines: Sequence[TranscriptLine]) -> set[int]:
    by_uuid = {uuid: line for line in lines if (uuid := line.text("uuid")) is not None}
    path: set[int] = set()
    line: TranscriptLine | None = last
    while line is not None and line.number not in path:
        path.add(line.number)
        # After a compaction the tree starts again, and names where it continues.
        parent = line.text("parentUuid") or line.text("logicalParentUuid")
        line = by_uuid.get(parent) if parent else None
    return path
