"""Splits text into words, which are the units that a search compares. Pure.

Words are split according to Unicode, case-folded, and stripped of diacritics. An identifier is one
word, and each of its parts is a word too: `order_4711` also yields `order` and `4711`, and
`getUser` also yields `get` and `user`. In scripts without spaces (Chinese, Japanese, Korean, Thai,
Lao, Burmese, Khmer) each character is a word, and an index stores pairs of adjacent characters.
Each emoji is a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

LONGEST = 64  # characters of a word that are compared

# Scripts that write words without spaces between them.
_DENSE = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ec6\u0ec8-\u0ecd\u0edc-\u0edf\u1000-\u103f\u1050-\u109f"
    "\u1100-\u11ff\u1780-\u17d3\u3005-\u3007\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_EMOJI = "\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
# Combining marks, which a search ignores.
_ACCENTS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
    "\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u200c\u200d"
)
_INDIC = "\u0900-\u0963\u0966-\u0dff"  # vowel signs are not letters, but are part of the word

_RUN = re.compile(
    f"(?P<dense>[{_DENSE}]+)|(?P<emoji>[{_EMOJI}])"
    f"|(?P<word>(?:(?![{_DENSE}{_EMOJI}])[\\w{_INDIC}{_ACCENTS}])+)"
)
_ASCII = re.compile(r"[A-Za-z0-9_]+")
_PARTS = re.compile(r"(?<=[^\W_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+")
_MIXED = re.compile(r"_|[^\W_A-Z][A-Z]|[A-Z][A-Z][a-z]")
_IGNORED = re.compile(f"[{_ACCENTS}]")


class Word(NamedTuple):
    """A word in a text, from character `start` to `end`. `part` is false for a whole identifier
    whose parts are words too; `dense` is true for a character of a script without spaces."""

    text: str
    start: int
    end: int
    part: bool = True
    dense: bool = False


def fold(text: str) -> str:
    """Return a word in the form in which words are compared: case-folded and without diacritics."""
    if text.isascii():
        return text.lower()
    plain = _IGNORED.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return unicodedata.normalize("NFKC", plain)


def words(text: str) -> Iterator[Word]:
    """Yield the words of a text in order. An identifier comes before its parts."""
    if text.isascii():
        for found in _ASCII.finditer(text):
            yield from _identifier(found[0], found.start())
        return
    for found in _RUN.finditer(text):
        if found.lastgroup == "word":
            yield from _identifier(found[0], found.start())
        elif found.lastgroup == "emoji":
            yield Word(found[0], found.start(), found.end())
        else:
            yield from _characters(found[0], found.start())


def _identifier(run: str, start: int) -> Iterator[Word]:
    if _MIXED.search(run) is None:
        if folded := fold(run):
            yield Word(folded[:LONGEST], start, start + len(run))
        return
    parts: list[Word] = []
    at = 0
    for cut in [*_PARTS.finditer(run), None]:
        upto = len(run) if cut is None else cut.start()
        if folded := fold(run[at:upto]):
            parts.append(Word(folded[:LONGEST], start + at, start + upto))
        at = len(run) if cut is None else cut.end()
    whole = fold(run)
    if parts and (len(parts) > 1 or parts[0].text != whole):
        yield Word(whole[:LONGEST], start, start + len(run), part=False)
    yield from parts


def _characters(run: str, start: int) -> Iterator[Word]:
    folded = fold(run)
    same = len(folded) == len(run)
    for at, one in enumerate(folded):
        if same:
            yield Word(one, start + at, start + at + 1, dense=True)
        else:
            yield Word(one, start, start + len(run), dense=True)


def index_terms(text: str) -> set[str]:
    """Return the terms that an index stores for a text: its words, and for each run of characters
    in a script without spaces, the pairs of adjacent characters and the last character."""
    if text.isascii():
        return _ascii_terms(text)
    terms: set[str] = set()
    last: Word | None = None
    for word in words(text):
        if last is not None:
            terms.add(last.text + word.text if is_joined(last, word) else last.text)
        last = word if word.dense else None
        if last is None:
            terms.add(word.text)
    if last is not None:
        terms.add(last.text)
    return terms


def _ascii_terms(text: str) -> set[str]:
    if _MIXED.search(text) is None:  # no identifiers
        found = set(_ASCII.findall(text.lower()))
        if max(map(len, found), default=0) > LONGEST:
            found = {run[:LONGEST] for run in found}
        return found
    terms: set[str] = set()
    for run in set(_ASCII.findall(text)):
        if _MIXED.search(run) is None:
            terms.add(run[:LONGEST].lower())
        else:
            terms.update(word.text for word in _identifier(run, 0))
    return terms


def is_joined(first: Word, second: Word) -> bool:
    """Return whether two words are adjacent characters of a script without spaces."""
    return first.dense and second.dense and first.end >= second.start
