"""Spans of a text that a rule has found, and the placeholders that come to stand there."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

# What stands where something was taken out. No rule looks inside of one, so that what was
# masked once stays as it is.
PLACEHOLDER = re.compile(r"\[(?:redacted|withheld)(?::[a-z][a-z0-9_-]{0,39})?(?::\d{1,9})?\]")


class Span(NamedTuple):
    """From where to where, by which rule, and why."""

    start: int
    end: int
    rule: str
    reason: str = ""


Finder: TypeAlias = Callable[[str], Iterable[Span]]


def masked(text: str) -> bool:
    """Whether there may be a placeholder in it."""
    return "[redacted" in text or "[withheld" in text


def only_placeholders(text: str) -> bool:
    """Whether nothing but placeholders and blanks is left of it."""
    return masked(text) and not PLACEHOLDER.sub("", text).strip()


def apart(text: str, spans: Iterable[Span]) -> list[Span]:
    """The spans in order; those that overlap are one. None lies inside a placeholder, or holds
    nothing but some."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.start >= span.end:
            continue
        if kept and span.start < kept[-1].end:
            kept[-1] = kept[-1]._replace(end=max(span.end, kept[-1].end))
        else:
            kept.append(span)
    if not kept or not masked(text):
        return kept
    holes = [found.span() for found in PLACEHOLDER.finditer(text)]
    starts = [start for start, _ in holes]
    whole = [_whole(span, holes, starts) for span in kept]
    return [span for span in whole if not only_placeholders(text[span.start : span.end])]


def _whole(span: Span, holes: list[tuple[int, int]], starts: list[int]) -> Span:
    """The span with all of the placeholders that it begins or ends in."""
    start, end, rule, reason = span
    before = bisect.bisect_right(starts, start) - 1
    if before >= 0 and start < holes[before][1]:
        start = holes[before][0]
    last = bisect.bisect_left(starts, end) - 1
    if last >= 0 and end < holes[last][1]:
        end = holes[last][1]
    return Span(start, end, rule, reason)


class Shape(NamedTuple):
    """What has the form of a secret by itself: its rule, texts of which one must be there, and a
    pattern whose last group, if it has one, is the secret."""

    rule: str
    marks: tuple[str, ...]
    pattern: re.Pattern[str]


def shapes(*table: tuple[str, str, str]) -> tuple[Shape, ...]:
    """A table of shapes; marks stand with a bar between them."""
    return tuple(
        Shape(rule, tuple(marks.split("|")), re.compile(pattern)) for rule, marks, pattern in table
    )


def shaped(text: str, table: Iterable[Shape]) -> Iterator[Span]:
    """All that has one of these shapes."""
    for rule, marks, pattern in table:
        for mark in marks:
            if mark in text:
                for found in pattern.finditer(text):
                    yield Span(*found.span(found.lastindex or 0), rule)
                break


def trie(texts: Iterable[str]) -> str:
    """A pattern for any of the texts, the longest that fits, with what they share in one place."""
    by_first: dict[str, list[str]] = {}
    for text in texts:
        by_first.setdefault(text[:1], []).append(text[1:])
    ends = by_first.pop("", None) is not None
    parts = [re.escape(first) + trie(rest) for first, rest in sorted(by_first.items())]
    if not parts:
        return ""
    either = parts[0] if len(parts) == 1 and not ends else f"(?:{'|'.join(parts)})"
    return f"{either}?" if ends else either
