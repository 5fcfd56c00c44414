"""Finds the words that make the other format modules search the text after them: names of secrets,
programs and verbs of commands, functions and sentences about logging in; and long runs of
characters. Two passes find them for all formats, so that not every format has to search the whole
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, compress
from typing import NamedTuple, TypeAlias

from ..names import NAME, Names, listed, word_set, words
from ..spans import Bounds, Span
from ..verdict import Syntax
from .commands import OPTIONS, VERBS

_IDENTIFIER = re.compile(r"([^\W\d][\w.-]*+)")
_GAP = re.compile(r"[ '’]")
_WORD = re.compile(r"[^\W\d_]{1,21}(?:-[^\W\d_]{1,12})?\Z")
_NOT_BEFORE = ("[redacted:", "[withheld:", "checksum/")
_CALLED = ("(", " ", "=", ":", "-", "\n")
_NUMBERED = re.compile(r" (?:[\[(]?(?:no\.? ?|#)?\d{1,2}[\])]?)(?=\s{0,2}[:=])")
_RUN = re.compile(r"[A-Za-z0-9_+/.~:|$-]{14,}+")  # the shortest token has 14 characters
_PROGRAMS = {*OPTIONS, "z", "za"}  # 7z and 7za do not begin with a letter
_VERBS = {verb.partition(" ")[0].partition(":")[0] for verb in VERBS}
# Words in names of authentication functions: an argument that looks like a secret counts as one.
_CALLEES = word_set("""
login log signin sign auth authenticate authorize connect connection credential credentials
password passwd encrypt decrypt hmac cipher hash basic bind pdo unlock token jwt verify secret key
fernet account client session mysqli access identity digest cookie hashpw sha256 ftp smtp
imap ldap unseal setpassword encode decode createhmac aes btoa algoliasearch superuser
""")
_LOGINS = listed("log sign credential access einloggen anmeld melde connecter connexion")
_NAME, _PROGRAM, _VERB, _CALLEE, _LOGIN = 1, 2, 4, 8, 16
_KINDS = 16_384  # words whose kinds are cached


class Pair(NamedTuple):
    """The span of a value in a string, and its name. `says` is the kind of the name (see
    `Names.find`); it is empty if the kind is not known yet.
    """

    start: int
    end: int
    name: str
    says: str
    syntax: Syntax


Candidates: TypeAlias = Iterator[Pair | Span]


class SecretName(NamedTuple):
    """The name of a secret in a string: its text, its position, and its kind `says` (see
    `Pair`).
    """

    start: int
    end: int
    name: str
    says: str

    @property
    def words(self) -> tuple[str, ...]:
        return words(self.name)

    def pair(self, span: Bounds, syntax: Syntax) -> Pair:
        """Return the pair of this name and the value at `span`."""
        return Pair(*span, self.name, self.says, syntax)


class Keyword(NamedTuple):
    """A word in a text that makes another format module search the text after it."""

    start: int
    end: int
    text: str


class Keywords(NamedTuple):
    """All keywords of a string, by kind."""

    names: list[SecretName]
    programs: list[Keyword]  # programs on command lines
    verbs: list[Keyword]  # verbs of commands that handle secrets
    callees: list[Keyword]  # authentication functions
    logins: list[Keyword]  # sentences about logging in
    runs: list[Bounds]  # runs of characters that can be tokens


def keywords(text: str, names: Names) -> Keywords:
    """Find the keywords of a string."""
    runs = [found.span() for found in _RUN.finditer(text)]
    result = Keywords([], [], [], [], [], runs)
    parts = _IDENTIFIER.split(text)
    found = parts[1::2]
    kinds = _kinds(found, names)
    if not any(kinds):
        return result
    starts = list(accumulate(map(len, parts)))[::2]
    for start, word, kind in compress(zip(starts, found, kinds, strict=False), kinds):
        if kind & _NAME and (name := _secret_name(text, start, word, names)):
            if result.names and _is_repeated(text, result.names[-1], name):
                result.names.pop()
            result.names.append(name)
        if kind > _NAME:
            _add(text, Keyword(start, start + len(word.rstrip(".-")), word), kind, result)
    return result


def _is_repeated(text: str, before: SecretName, name: SecretName) -> bool:
    """Return whether only a space separates a weak name from the next name."""
    return before.says == "weak" and name.start - before.end == 1 and text[before.end] == " "


def _kinds(found: list[str], names: Names) -> list[int]:
    """Return the kinds of each word; each distinct word is classified once."""
    known = names.kinds
    if len(known) > _KINDS:
        known = names.kinds = {}
    for word in set(found):
        if word not in known:
            known[word] = _kind(word, names)
    return list(map(known.__getitem__, found))


def _add(text: str, word: Keyword, kind: int, result: Keywords) -> None:
    if kind & _PROGRAM:
        result.programs.append(word)
    if kind & _VERB:
        result.verbs.append(word)
    if kind & _CALLEE and text.startswith(_CALLED, word.end):
        result.callees.append(word)
    if kind & _LOGIN:
        result.logins.append(word)


def _kind(word: str, names: Names) -> int:
    """Return the kinds of a word, as a sum of flags."""
    if len(word) > NAME:
        return 0
    kind = 0
    if bare := word.rstrip(".-_"):
        says, extends = names.said(bare)
        kind = _NAME if says is not None or extends else 0
    if word.removesuffix(".exe") in _PROGRAMS:
        kind |= _PROGRAM
    if word in _VERBS:
        kind |= _VERB
    if not _CALLEES.isdisjoint(words(word)):
        kind |= _CALLEE
    return kind | _LOGIN if word.lower().startswith(_LOGINS) else kind


def _secret_name(text: str, start: int, word: str, names: Names) -> SecretName | None:
    name = word.rstrip(".-_")
    end = start + len(name)
    says, extends = names.said(name)
    if extends:
        says, start, name = _extended(text, start, name, says, names)
    if says is None or text.endswith(_NOT_BEFORE, max(0, start - 10), start):
        return None
    numbered = _NUMBERED.match(text, end)
    return SecretName(start, numbered.end() if numbered else end, name, says)


def _extended(
    text: str, start: int, name: str, says: str | None, names: Names
) -> tuple[str | None, int, str]:
    """Extend the name by the preceding words that make it the name of a secret, as in
    `stripe key`.
    """
    parts = _words_before(text, start)
    if not parts:
        return says, start, name
    for take in range(1, len(parts) + 1):
        whole = "_".join([*parts[-take:], name])
        if (found := names.find(whole)) and (found != "weak" or says is None):
            begun = start - len(" ".join(parts[-take:])) - 1
            return found, max(0, begun), whole.replace("_", " ")
    # The word before it may also change its meaning: `primary key`.
    return (says if names.find(f"{parts[-1]}_{name}") else None), start, name


def _words_before(text: str, start: int) -> list[str]:
    """Return up to three words before a name, each followed by one space or apostrophe."""
    if not text.endswith((" ", "'", "’"), 0, start):
        return []
    parts: list[str] = []
    for part in reversed(_GAP.split(text[max(0, start - 48) : start - 1])):
        word = _WORD.search(part)
        if word is None:
            break
        parts.insert(0, word[0])
        if len(parts) == 3 or word[0] != part:
            break
    return parts
