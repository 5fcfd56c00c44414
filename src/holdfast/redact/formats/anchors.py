"""Names of secrets in a text, where every format begins to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..names import NAME, Names

_IDENTIFIER = re.compile(r"[^\W\d][\w.-]*+")
_BEFORE = re.compile(r"(?:[^\W\d_][^\W\d_-]{0,20}(?:-[^\W\d_]{1,12})?(?:[ ]|['’])){1,3}\Z")
_BEHIND = re.compile(r" (?:[\[(]?(?:no\.? ?|#)?\d{1,2}[\])]?)(?=\s{0,2}[:=])")


class Anchor(NamedTuple):
    """A name in a text, from where to where, and how it says that a secret stands under it."""

    start: int
    end: int
    name: str
    says: str


def anchors(text: str, names: Names) -> Iterator[Anchor]:
    """Every name in the text that `names` knows."""
    for found in _IDENTIFIER.finditer(text):
        start, end = found.span()
        if end - start > NAME:
            continue
        name = found[0]
        if name[-1] in ".-_":
            name = name.rstrip(".-_")
            end = start + len(name)
        if not name:
            continue
        says, last = names.said(name)
        if last:
            says, start, name = _longer(text, start, name, says, names)
        if says is None or _inside_placeholder(text, start):
            continue
        behind = _BEHIND.match(text, end)
        yield Anchor(start, behind.end() if behind else end, name, says)


def _longer(
    text: str, start: int, name: str, says: str | None, names: Names
) -> tuple[str | None, int, str]:
    """The name with the words before it that make it one of a secret."""
    lead = _BEFORE.search(text, max(0, start - 48), start)
    if lead is None:
        return says, start, name
    parts = lead[0].replace("’", "'").replace("'", " ").split()
    for take in range(1, len(parts) + 1):
        whole = "_".join([*parts[-take:], name])
        if (found := names.find(whole)) and (found != "weak" or says is None):
            begun = start - len(" ".join(parts[-take:])) - 1
            return found, max(0, begun), whole.replace("_", " ")
    # `the key`, `any token`, `primary key`: what stands before may also make it none.
    own = "_".join([parts[-1], name])
    return (None if names.find(own) is None else says), start, name


def _inside_placeholder(text: str, start: int) -> bool:
    return text[start - 1 : start] == ":" and text[max(0, start - 10) : start] in (
        "[redacted:",
        "[withheld:",
    )
