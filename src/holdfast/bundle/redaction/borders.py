"""Secrets that begin in one text and end in the next: in the next part of a message, or in the next
event of the same kind and role."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...events import Event
from ...redact import Span

# A name says that a secret stands there, and not where it ends: only the form of one tells.
LONGEST = 256  # characters on each side of a border that are looked at
SHORTEST = 20  # characters of a run across a border; a shorter one may be two words
PIECE = 6  # characters of a piece that is told apart from a word
_LAST = re.compile(r"[\w+/=.~:-]{1,256}\Z")
_FIRST = re.compile(r"[\w+/=.~:-]{1,256}")
_DIGIT = re.compile(r"\d")


class Borders:
    """Looks at the borders between texts that follow each other; `find` looks through a text."""

    def __init__(self, find: Callable[[str], Iterable[Span]]) -> None:
        self._find = find
        self._before: dict[tuple[str, str], str] = {}

    def pieces(self, event: Event) -> Iterator[str]:
        """The pieces of the secrets that end in this event."""
        data = event.json()
        role = data.get("role") if isinstance(data, dict) else None
        for path, text in _texts(data, ""):
            place = event.kind, f"{role}{path}"
            if before := self._before.get(place):
                yield from self._across(before, text)
            self._before[place] = text[-LONGEST:]

    def _across(self, before: str, text: str) -> Iterator[str]:
        last, first = _LAST.search(before), _FIRST.match(text)
        if last is None or first is None:
            return
        run = last[0] + first[0]
        if len(run) < SHORTEST or not _DIGIT.search(run):
            return
        border = len(before)
        if any(span.end == border and span.rule != "key" for span in self._find(before)):
            return  # it is whole
        for span in self._find(before + text[:LONGEST]):
            if span.start < border < span.end and span.rule != "key":
                whole = before + text[:LONGEST]
                for piece in (whole[span.start : border], whole[border : span.end]):
                    if len(piece) >= PIECE and (_DIGIT.search(piece) or len(piece) >= 2 * PIECE):
                        yield piece


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The texts of a value in order, each with the names that it stands under."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, path)
