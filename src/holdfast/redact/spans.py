"""Spans of a string that contain secrets, and the placeholders that replace them."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

# A placeholder. No rule looks inside one, so that redacting twice changes nothing.
PLACEHOLDER = re.compile(r"\[(?:redacted|withheld)(?::[a-z][a-z0-9_-]{0,39})?(?::\d{1,9})?\]")


# The start and the end of a span in a text.
Bounds: TypeAlias = tuple[int, int]


class Span(NamedTuple):
    """A span of a string that a rule has found, with the name of the rule and the reason.

    See [redaction](../redaction.md).
    """

    start: int
    end: int
    rule: str
    reason: str = ""


Finder: TypeAlias = Callable[[str], Iterable[Span]]


def pattern_finder(rule: str, pattern: re.Pattern[str]) -> Finder:
    """Return a finder for the first group of a pattern, or for the whole match if it has no
    groups.
    """
    group = 1 if pattern.groups else 0

    def find(text: str) -> Iterator[Span]:
        for found in pattern.finditer(text):
            if found.start(group) >= 0:
                yield Span(*found.span(group), rule)

    return find


def spliced(text: str, pieces: Iterable[tuple[int, int, str]]) -> str:
    """Return the text with spans replaced. Each piece has the start and the end of a span, and its
    replacement; pieces must be in order and must not overlap.
    """
    out, done = [], 0
    for start, end, piece in pieces:
        out += [text[done:start], piece]
        done = end
    return "".join([*out, text[done:]]) if out else text


def masked(text: str) -> bool:
    """Return whether the text may contain a placeholder."""
    return "[redacted" in text or "[withheld" in text


def only_placeholders(text: str) -> bool:
    """Return whether the text consists of placeholders and white space.

    See [redaction](../redaction.md).
    """
    return masked(text) and not PLACEHOLDER.sub("", text).strip()


def merged(text: str, spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, with overlapping spans merged. Spans are extended so that they do
    not cut a placeholder in two; spans that consist only of placeholders are dropped.
    """
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


def _whole(span: Span, holes: list[Bounds], starts: list[int]) -> Span:
    """Return the span, extended so that it contains the whole of each placeholder in which it
    begins or ends.
    """
    start, end, rule, reason = span
    before = bisect.bisect_right(starts, start) - 1
    if before >= 0 and start < holes[before][1]:
        start = holes[before][0]
    last = bisect.bisect_left(starts, end) - 1
    if last >= 0 and end < holes[last][1]:
        end = holes[last][1]
    return Span(start, end, rule, reason)


def trie(texts: Iterable[str]) -> str:
    """Return a pattern that matches the longest of these strings; common prefixes are shared."""
    by_first: dict[str, list[str]] = {}
    for text in texts:
        by_first.setdefault(text[:1], []).append(text[1:])
    ends = by_first.pop("", None) is not None
    parts = [re.escape(first) + trie(rest) for first, rest in sorted(by_first.items())]
    if not parts:
        return ""
    either = parts[0] if len(parts) == 1 and not ends else f"(?:{'|'.join(parts)})"
    return f"{either}?" if ends else either
