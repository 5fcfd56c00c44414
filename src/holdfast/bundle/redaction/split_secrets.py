"""Finds secrets whose text is split between two strings: between two parts of a message, or between
two consecutive events of the same kind and role in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...redact import Span
from ..json_values import as_dict

CONTEXT = 256  # characters that are searched on each side of a boundary
SHORTEST_RUN = 20  # minimum length of a run across a boundary; a shorter one may be two words
SHORTEST_PIECE = 6  # minimum length of a piece; a shorter one may be a word
_LAST = re.compile(r"[\w+/=.~:-]{1,256}\Z")
_FIRST = re.compile(r"[\w+/=.~:-]{1,256}")
_DIGIT = re.compile(r"\d")


class SplitSecrets:
    """Searches the boundaries between consecutive strings with `find`."""

    def __init__(self, find: Callable[[str], Iterable[Span]]) -> None:
        self._find = find
        self._before: dict[tuple[str, str], str] = {}

    def pieces(self, data: Any, place: str) -> Iterator[tuple[str, str]]:
        """Return the pieces of split secrets that end in this event, each with its rule. `place`
        identifies the thread and the kind of the event.
        """
        role = as_dict(data).get("role")
        for path, text in _texts(data, ""):
            at = f"{place} {role}", path
            if before := self._before.get(at):
                yield from self._across(before, text[:CONTEXT])
            self._before[at] = text[-CONTEXT:]

    def _across(self, before: str, text: str) -> Iterator[tuple[str, str]]:
        last, first = _LAST.search(before), _FIRST.match(text)
        if last is None or first is None:
            return
        run = last[0] + first[0]
        if len(run) < SHORTEST_RUN or not _DIGIT.search(run):
            return
        border, joined = len(before), before + text
        if any(span.end == border for span in self._by_form(before)):
            return  # a secret ends at the boundary
        for span in self._by_form(joined):
            if span.start < border < span.end:
                pieces = joined[span.start : border], joined[border : span.end]
                yield from ((piece, span.rule) for piece in pieces if _is_distinct(piece))

    def _by_form(self, text: str) -> list[Span]:
        """Return the secrets that are recognized by their format. A name alone does not determine
        where its value ends.
        """
        return [span for span in self._find(text) if span.rule != "key"]


def _is_distinct(piece: str) -> bool:
    if len(piece) < SHORTEST_PIECE:
        return False
    return _DIGIT.search(piece) is not None or len(piece) >= 2 * SHORTEST_PIECE


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the strings of a value in order, each with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, path)
