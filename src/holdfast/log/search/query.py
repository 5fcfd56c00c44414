"""The query language of full-text search: parsing, matching and excerpts. Pure.

refund order_4711        both words
"late delivery"          a phrase
ship*                    words that begin with `ship`
-cancelled               excludes texts with this word or phrase
from:user                texts of users; also from:assistant and from:tool
tool:refund              calls of this tool, and their results
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from ...errors import InvalidValue
from .texts import EventText
from .words import LONGEST, Word, is_joined, words

MOST_CLAUSES = 32
MOST_CHARACTERS = 1_000
ROLES = ("user", "assistant", "tool")
AROUND = 80  # characters that an excerpt shows on each side of a match

_ITEM = re.compile(r'(-)?(?:(from|tool):("[^"]*"?|\S+)|"([^"]*)"?|(\S+))')


class Clause(Struct, frozen=True):
    """A word or a phrase of a query. `words` are consecutive words. In scripts without spaces,
    `joined` says for each word after the first whether it directly follows the previous word.
    `whole` is set if the clause is a single identifier, which is compared as one word. With
    `prefix`, the last word matches any word that begins with it."""

    words: tuple[str, ...]
    joined: tuple[bool, ...] = ()
    whole: str | None = None
    prefix: bool = False
    dense: tuple[bool, ...] = ()

    @property
    def single(self) -> str | None:
        """The word of the clause, if an index stores it as one term; None for a phrase."""
        if self.whole is not None:
            return self.whole
        return self.words[0] if len(self.words) == 1 else None


class TextQuery(Struct, frozen=True):
    """A parsed query. A text matches if it contains all clauses in `wanted` and none in `without`;
    `roles`, `not_roles`, `tools` and `not_tools` filter in the same way."""

    wanted: tuple[Clause, ...]
    without: tuple[Clause, ...] = ()
    roles: tuple[str, ...] = ()
    not_roles: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    not_tools: tuple[str, ...] = ()


class MatchedPassage(NamedTuple):
    """A passage of an event with matches. `spans` are the positions of the matches, as (start,
    end)."""

    passage: str
    spans: list[tuple[int, int]]


def parse_query(text: str) -> TextQuery:
    """Parse a query. Raises `InvalidValue` if the query contains nothing to search for."""
    if not isinstance(text, str):
        raise InvalidValue(field="query", problem=f"is {type(text).__name__}", remedy="pass text")
    if len(text) > MOST_CHARACTERS:
        raise InvalidValue(
            field="query",
            problem=f"has {len(text)} characters",
            remedy="use fewer words",
            limit=MOST_CHARACTERS,
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(
            field="query", problem="contains a lone surrogate", remedy="pass valid Unicode"
        ) from error
    clauses: tuple[list[Clause], list[Clause]] = ([], [])
    roles: tuple[list[str], list[str]] = ([], [])
    tools: tuple[list[str], list[str]] = ([], [])
    for minus, filter_, value, phrase, word in _ITEM.findall(text):
        negative = bool(minus)
        if filter_ == "from":
            roles[negative].append(_role(value.strip('"')))
        elif filter_ == "tool":
            tools[negative].append(value.strip('"'))
        elif (clause := _clause(phrase or word, quoted=bool(phrase))) is not None:
            clauses[negative].append(clause)
    if not (clauses[0] or roles[0] or tools[0]):
        raise InvalidValue(
            field="query",
            problem="contains nothing to search for",
            remedy="pass at least one word, phrase, from: or tool:",
        )
    if sum(len(some) for pair in (clauses, roles, tools) for some in pair) > MOST_CLAUSES:
        raise InvalidValue(
            field="query",
            problem="has too many words",
            remedy=f"use at most {MOST_CLAUSES}",
            limit=MOST_CLAUSES,
        )
    wanted, without = (tuple(some) for some in clauses)
    return TextQuery(
        wanted, without, tuple(roles[0]), tuple(roles[1]), tuple(tools[0]), tuple(tools[1])
    )


def _role(value: str) -> str:
    if value not in ROLES:
        raise InvalidValue(
            field="query",
            problem=f"contains the unknown role from:{value}",
            remedy=f"use from:{'|'.join(ROLES)}",
        )
    return value


def _clause(text: str, *, quoted: bool) -> Clause | None:
    prefix = not quoted and text.endswith("*")
    found = list(words(text))
    parts = [word for word in found if word.part]
    if not parts:
        return None
    whole = next((word.text for word in found if not word.part), None)
    if quoted or (whole is not None and len(found) > len(parts) + 1):
        whole = None  # several identifiers: compare their parts
    elif whole is not None and found[0].end - found[0].start < parts[-1].end - parts[0].start:
        whole = None  # an identifier together with other words
    return Clause(
        words=tuple(word.text for word in parts),
        joined=tuple(is_joined(a, b) for a, b in pairwise(parts)),
        whole=whole,
        prefix=prefix,
        dense=tuple(word.dense for word in parts),
    )


# Matching


def match(query: TextQuery, text: EventText) -> MatchedPassage | None:
    """Return the passage of an event with the most matches, or None if the event does not match."""
    if query.roles and text.role not in query.roles:
        return None
    if text.role in query.not_roles or set(query.not_tools) & set(text.tools):
        return None
    if not set(query.tools) <= set(text.tools):
        return None
    split = [list(words(passage)) for passage in text.passages]
    if any(_spans(clause, some) for clause in query.without for some in split):
        return None
    best: MatchedPassage | None = None
    missing = set(range(len(query.wanted)))
    for passage, some in zip(text.passages, split, strict=True):
        found: list[tuple[int, int]] = []
        for number, clause in enumerate(query.wanted):
            if spans := _spans(clause, some):
                missing.discard(number)
                found += spans
        if found and (best is None or len(found) > len(best.spans)):
            best = MatchedPassage(passage, _merged(found))
    if missing:
        return None
    return best or MatchedPassage(text.passages[0] if text.passages else "", [])


def _spans(clause: Clause, some: Sequence[Word]) -> list[tuple[int, int]]:
    """Return the positions of a clause in a passage."""
    if clause.whole is not None:
        return [
            (word.start, word.end) for word in some if _same(clause.whole, word.text, clause.prefix)
        ]
    if len(clause.words) == 1:
        (wanted,) = clause.words
        return [(word.start, word.end) for word in some if _same(wanted, word.text, clause.prefix)]
    parts = [word for word in some if word.part]
    return [
        (parts[at].start, parts[at + len(clause.words) - 1].end)
        for at in range(len(parts) - len(clause.words) + 1)
        if parts[at].text == clause.words[0] and _continues(clause, parts, at)
    ]


def _continues(clause: Clause, parts: Sequence[Word], at: int) -> bool:
    """Return whether all words of a phrase match at this position."""
    last = len(clause.words) - 1
    return all(
        _same(clause.words[n], parts[at + n].text, clause.prefix and n == last)
        and (not clause.joined[n - 1] or is_joined(parts[at + n - 1], parts[at + n]))
        for n in range(1, last + 1)
    )


def _same(wanted: str, text: str, prefix: bool) -> bool:
    return text.startswith(wanted) if prefix else text == wanted


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, with overlapping spans merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def excerpt(found: MatchedPassage) -> tuple[str, list[tuple[int, int]]]:
    """Return the text around the first match, and the positions of the matches in that text."""
    first, last = found.spans[0] if found.spans else (0, 0)
    last = min(last, first + LONGEST * 4)
    start = max(0, first - AROUND)
    end = last + AROUND + max(0, AROUND - first)
    text = found.passage[start:end]
    marks = [
        (a - start, min(b - start, len(text))) for a, b in found.spans if a - start < len(text)
    ]
    return text, marks


# Conditions for an index


class Condition(NamedTuple):
    """A term that an event must have in the index, or with `negative` must not have, to match a
    query."""

    term: str
    prefix: bool = False
    negative: bool = False


def conditions(query: TextQuery) -> list[Condition]:
    """Return the conditions with which an index selects candidates for a query. They never exclude
    a match, but may let through events that do not match, so `match` checks each candidate."""
    found: list[Condition] = []
    for clause in query.wanted:
        found += _clause_conditions(clause)
    for clause in query.without:
        if clause.single is not None and not any(clause.dense):
            found.append(Condition(clause.single, clause.prefix, negative=True))
    return list(dict.fromkeys(found))


def _clause_conditions(clause: Clause) -> Iterator[Condition]:
    if clause.whole is not None:
        yield Condition(clause.whole, clause.prefix)
        return
    last = len(clause.words) - 1
    for n, word in enumerate(clause.words):
        follows = n < last and clause.joined[n]
        if not clause.dense[n]:
            yield Condition(word, clause.prefix and n == last)
        elif follows:
            yield Condition(word + clause.words[n + 1])
        elif n == 0 or not clause.joined[n - 1]:
            yield Condition(word, prefix=True)
