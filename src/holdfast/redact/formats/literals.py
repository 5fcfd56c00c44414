"""Finds where values end: quoted literals, runs of characters, and rests of lines."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..spans import PLACEHOLDER, Bounds

LONGEST = 1 << 16  # maximum length of a value, in characters

_OPEN = re.compile(
    r"(?:[bBrRuUfFLN@$]{1,2}(?=[\"'])|r\#{0,2}(?=\"))?(\\{0,3})(\"\"\"|'''|\"(?!\"\")|['`„“‘«]|(?:%[qQ]|qq?)[({\[<]|\[\[)"
)
_CLOSE = {"„": "“”", "“": "”", "‘": "’", "«": "»"}
_BRACKETS = {"(": ")", "{": "}", "[": "]", "<": ">"}
_RUN = re.compile(
    rf"(?:{PLACEHOLDER.pattern}|[^\s\"'`,;<>()\[\]{{}}\\&|\x00]|&(?!amp;|quot;|[\w.%-]{{1,64}}=)|\|(?=\w)|\\(?=[^\s\"'nrt\\]))"
    r"{1,65536}+"
)
_LINE = re.compile(r"[^\r\n]{0,65536}+")
_COMMENT = re.compile(r"[ \t]+(?:#|//|--|;)(?:[ \t].*|)\Z")
_BRACED = re.compile(r"\{([^{}\r\n\"':]{1,256})\}")
_VARIABLE = re.compile(r"(?m)^(?:export )?[A-Z][A-Z0-9_]{1,127}=")
_SECTION = re.compile(r"(?m)^\[[\w .:@/-]{1,64}\][ \t]{0,4}\r?$")


class Literal(NamedTuple):
    """The text between two quotes, and the position after the closing quote."""

    start: int
    end: int
    after: int

    @property
    def span(self) -> Bounds:
        return self.start, self.end


def quoted(text: str, at: int) -> Literal | None:
    """Return the literal that begins at `at`. An unclosed literal ends with its line."""
    found = _OPEN.match(text, at)
    if found is None:
        return None
    start, escapes, quote = found.end(), len(found[1]), found[2]
    if quote[-1] in _BRACKETS:  # `%q{…}`, `q(…)`, `[[…]]`
        end = text.find(_BRACKETS[quote[-1]], start, start + 256)
        return Literal(start, end, end + 1) if end > 0 else None
    if quote in _CLOSE:
        ends = (text.find(close, start, start + 256) for close in _CLOSE[quote])
        closed = min((end for end in ends if end >= 0), default=None)
    else:
        closed = _unescaped(text, start, escapes, quote)
    if closed is None:
        line = text.find("\n", start, start + LONGEST)
        end = line if line >= 0 else min(len(text), start + LONGEST)
        return Literal(start, end, end)
    return Literal(start, closed, closed + escapes + len(quote))


def literals(text: str, at: int, gap: re.Pattern[str], limit: int) -> Iterator[Literal]:
    """Yield the literal at `at` and the following literals, each after a match of `gap`."""
    for _ in range(limit):
        literal = quoted(text, at)
        if literal is None:
            return
        yield literal
        found = gap.match(text, literal.after)
        if found is None:
            return
        at = found.end()


def _unescaped(text: str, start: int, escapes: int, quote: str) -> int | None:
    """Return the position of the next unescaped quote, on the same line or a few lines later."""
    limit = min(len(text), start + LONGEST)
    if len(quote) == 1 and quote != "`":
        line = text.find("\n", start, limit)
        # Literals of several lines are rare; stray quotes are not.
        limit = limit if line < 0 else max(line, min(limit, start + 4096) if escapes else line)
    end = start
    while (end := text.find(quote, end, limit)) >= 0:
        before = 0
        while end - before > start and text[end - before - 1] == "\\":
            before += 1
        if before <= escapes or (not escapes and before % 2 == 0):
            if quote == "'" and not escapes and text[end + 1 : end + 2] == "'":
                end += 2  # doubled, as in SQL and YAML
                continue
            return end - min(before, escapes)
        end += 1
    return None


class Runs:
    """Finds runs of characters and rests of lines in one text. Results are cached and shared by all
    names in the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._run = self._line = (0, 0)

    @functools.cached_property
    def ini(self) -> bool:
        """Whether the text has sections, like INI and TOML files."""
        return _SECTION.search(self._text, 0, LONGEST) is not None

    @functools.cached_property
    def environment(self) -> bool:
        """Whether the text lists environment variables, one per line."""
        return len(_VARIABLE.findall(self._text[:LONGEST])) >= 3

    def run(self, at: int) -> Bounds:
        """Return the word of a command, a log line or code that begins at `at`."""
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
                break  # passwords often end with such characters
            end -= 1
        return at, end

    def rest_of_line(self, at: int) -> Bounds:
        """Return the rest of the line without a trailing comment."""
        if not self._line[0] <= at < self._line[1]:
            self._line = rest_of_line(self._text, at)
        return at, max(at, self._line[1])


def run(text: str, at: int) -> Bounds:
    """Return the word that begins at `at`. For several words of one text, use `Runs`."""
    return Runs(text).run(at)


def rest_of_line(text: str, at: int) -> Bounds:
    """Return the rest of a line without a trailing comment."""
    found = _LINE.match(text, at)
    line = found[0] if found else ""
    if comment := _COMMENT.search(line):
        line = line[: comment.start()]
    return at, at + len(line.rstrip())


def in_string(text: str, start: int, quote: str) -> bool:
    """Return whether a string that was opened on this line is still open at `start`."""
    line = text[max(0, start - 2048) : start].rpartition("\n")[2]
    return (line.count(quote) - line.count("\\" + quote)) % 2 == 1


def line_start(text: str, at: int, within: int) -> int:
    """Return where the line of `at` begins, looking back at most `within` characters; 0 if
    unknown.
    """
    return text.rfind("\n", max(0, at - within), at) + 1
