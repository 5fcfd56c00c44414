"""Where a value ends: a literal in its quotes, a run, the rest of a line."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from ..spans import PLACEHOLDER

# ruff: noqa: E501 - a pattern is easier to read in one piece

LONGEST = 1 << 16  # characters of one value

_OPEN = re.compile(
    r"(?:[bBrRuUfFLN@$]{1,2}(?=[\"'])|r\#{0,2}(?=\"))?(\\{0,3})(\"\"\"|'''|\"(?!\"\")|['`„“‘«]|(?:%[qQ]|qq?)[({\[<]|\[\[)"
)
_CLOSE = {"„": "“”", "“": "”", "‘": "’", "«": "»"}
_BRACKETS = {"(": ")", "{": "}", "[": "]", "<": ">"}
_MASKED = PLACEHOLDER.pattern
_RUN = re.compile(
    rf"(?:{_MASKED}|[^\s\"'`,;<>()\[\]{{}}\\&|\x00]|&(?!amp;|quot;|[\w.%-]{{1,64}}=)|\|(?=\w)|\\(?=[^\s\"'nrt\\]))"
    r"{1,65536}+"
)
_LINE = re.compile(r"[^\r\n]{0,65536}+")
_COMMENT = re.compile(r"[ \t]+(?:#|//|--|;)(?:[ \t].*|)\Z")
_BRACED = re.compile(r"\{([^{}\r\n\"':]{1,256})\}")


_VARIABLE = re.compile(r"(?m)^(?:export )?[A-Z][A-Z0-9_]{1,127}=")
_SECTION = re.compile(r"(?m)^\[[\w .:@/-]{1,64}\][ \t]{0,4}\r?$")


class Literal(NamedTuple):
    """The inside of a quoted value, and where it ends with its quote."""

    start: int
    end: int
    after: int


def quoted(text: str, at: int) -> Literal | None:
    """The quoted value that begins at `at`; one that is not closed ends with its line."""
    found = _OPEN.match(text, at)
    if found is None:
        return None
    start, escapes, mark = found.end(), len(found[1]), found[2]
    if mark[-1] in _BRACKETS:  # `%q{…}`, `q(…)`, `[[…]]`
        end = text.find(_BRACKETS[mark[-1]], start, start + 256)
        return Literal(start, end, end + 1) if end > 0 else None
    closed = _closed(text, start, escapes, _CLOSE.get(mark, mark))
    if closed is None:
        line = text.find("\n", start, start + LONGEST)
        end = line if line >= 0 else min(len(text), start + LONGEST)
        return Literal(start, end, end)
    return Literal(start, closed, closed + escapes + len(mark))


def _closed(text: str, start: int, escapes: int, marks: str) -> int | None:
    """Where the quote is closed: on its line, or a few lines on."""
    if len(marks) == 3 or len(marks) == 1:
        return _unescaped(text, start, escapes, marks)
    ends = [end for mark in marks if (end := text.find(mark, start, start + 256)) >= 0]
    return min(ends, default=None)


def _unescaped(text: str, start: int, escapes: int, mark: str) -> int | None:
    limit = min(len(text), start + LONGEST)
    if len(mark) == 1 and mark != "`":
        line = text.find("\n", start, limit)
        # A literal that goes on over lines is rare; a quote that was never opened is not.
        limit = limit if line < 0 else max(line, min(limit, start + 4096) if escapes else line)
    end = start
    while (end := text.find(mark, end, limit)) >= 0:
        before = 0
        while end - before > start and text[end - before - 1] == "\\":
            before += 1
        if before <= escapes or (not escapes and before % 2 == 0):
            if mark == "'" and not escapes and text[end + 1 : end + 2] == "'":
                end += 2  # doubled, as in SQL and YAML
                continue
            return end - min(before, escapes)
        end += 1
    return None


class Runs:
    """Runs of characters and rests of lines of one text, each of which is measured once however many
    names stand in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._run = self._line = (0, 0)

    @functools.cached_property
    def ini(self) -> bool:
        """Whether the text has sections, as INI and TOML have."""
        return _SECTION.search(self._text, 0, LONGEST) is not None

    @functools.cached_property
    def environment(self) -> bool:
        """Whether the text lists variables, one a line."""
        return len(_VARIABLE.findall(self._text[:LONGEST])) >= 3

    def run(self, at: int) -> tuple[int, int]:
        """The run of characters that belong to one word of a command, a log line or code."""
        text = self._text
        if braced := _BRACED.match(text, at):
            return braced.span(1)
        if not self._run[0] <= at < self._run[1]:
            found = _RUN.match(text, at)
            self._run = found.span() if found else (at, at)
        end = self._run[1]
        while (
            end > at and text[end - 1] in ".,:!?" and text[end : end + 1] in ("", " ", "\n", "\r")
        ):
            if text[end - 1] in "!?" and end - at < 24:
                break  # a password may well end so
            end -= 1
        return at, end

    def rest_of_line(self, at: int) -> tuple[int, int]:
        """What is left of the line, without a comment behind it."""
        if not self._line[0] <= at < self._line[1]:
            self._line = rest_of_line(self._text, at)
        return at, max(at, self._line[1])


def run(text: str, at: int) -> tuple[int, int]:
    """One run of a text."""
    return Runs(text).run(at)


def rest_of_line(text: str, at: int) -> tuple[int, int]:
    """What is left of a line, without a comment behind it."""
    found = _LINE.match(text, at)
    start, end = found.span() if found else (at, at)
    line = text[start:end]
    if comment := _COMMENT.search(line):
        line = line[: comment.start()]
    line = line.rstrip()
    return start, start + len(line)


def in_string(text: str, start: int, mark: str) -> bool:
    """Whether a string that began on this line is still open at `start`."""
    begun = text.rfind("\n", max(0, start - 2048), start) + 1
    begun = max(begun, start - 2048)
    line = text[begun:start]
    return (line.count(mark) - line.count("\\" + mark)) % 2 == 1
