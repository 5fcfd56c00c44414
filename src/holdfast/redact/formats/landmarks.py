"""The places of a text at which formats begin to read: names of secrets, words of commands, calls
and sentences about access, and long runs of characters. They are found in two passes, so that every
format need not search all of the text by itself."""

from __future__ import annotations

import re
from itertools import accumulate, compress
from typing import NamedTuple

from ..names import NAME, Names, listed, words
from .commands import OPTIONS, VERBS

_IDENTIFIER = re.compile(r"([^\W\d][\w.-]*+)")
_GAP = re.compile(r"[ '’]")
_APART = (" ", "'", "’")
_WORD = re.compile(r"[^\W\d_]{1,21}(?:-[^\W\d_]{1,12})?\Z")
_DIGESTS = ("checksum/",)
_CALLED = ("(", " ", "=", ":", "-", "\n")
_BEHIND = re.compile(r" (?:[\[(]?(?:no\.? ?|#)?\d{1,2}[\])]?)(?=\s{0,2}[:=])")
RUN = 14  # characters of the shortest run in which a token may stand
_RUN = re.compile(rf"[A-Za-z0-9_+/.~:|$-]{{{RUN},}}+")
_PROGRAMS = {*OPTIONS, "z", "za"}  # 7z and 7za do not begin with a letter
_VERBS = {verb.partition(" ")[0].partition(":")[0] for verb in VERBS}
# Words of functions about access: a literal that looks like a secret is one among their arguments.
_CALLEES = frozenset(
    listed(
        """
login log signin sign auth authenticate authorize connect connection credential credentials
password passwd encrypt decrypt hmac cipher hash basic bind pdo unlock token jwt verify secret key
fernet account client session mysqli access identity digest cookie hashpw sha256 ftp smtp
imap ldap unseal setpassword encode decode createhmac aes btoa algoliasearch superuser
"""
    )
)
_LOGINS = listed("log sign credential access einloggen anmeld melde connecter connexion")
_NAME, _PROGRAM, _VERB, _CALLEE, _LOGIN = 1, 2, 4, 8, 16
_KINDS = 16_384  # words whose kinds are remembered


class Anchor(NamedTuple):
    """A name in a text, from where to where, and how it says that a secret stands under it."""

    start: int
    end: int
    name: str
    says: str


class Word(NamedTuple):
    """A word of a text that means something to a format."""

    start: int
    end: int
    text: str


class Landmarks(NamedTuple):
    """Where formats begin to read."""

    names: list[Anchor]
    programs: list[Word]  # of command lines
    verbs: list[Word]  # of commands about secrets
    callees: list[Word]  # functions about access
    logins: list[Word]  # sentences about access
    runs: list[tuple[int, int]]  # of characters that tokens are made of


def landmarks(text: str, names: Names) -> Landmarks:
    """Every place of the text at which a format begins to read."""
    runs = [found.span() for found in _RUN.finditer(text)]
    marks = Landmarks([], [], [], [], [], runs)
    parts = _IDENTIFIER.split(text)
    found = parts[1::2]
    kinds = _kinds(found, names)
    if not any(kinds):
        return marks
    starts = list(accumulate(map(len, parts)))[::2]
    for start, word, kind in compress(zip(starts, found, kinds, strict=False), kinds):
        if kind & _NAME and (anchor := _anchor(text, start, word, names)):
            if marks.names and _is_repeated(text, marks.names[-1], anchor):
                marks.names.pop()
            marks.names.append(anchor)
        if kind > _NAME:
            _sort(text, Word(start, start + len(word.rstrip(".-")), word), kind, marks)
    return marks


def _is_repeated(text: str, before: Anchor, anchor: Anchor) -> bool:
    """Whether a name that says little has nothing behind it but the next one."""
    return before.says == "weak" and anchor.start - before.end == 1 and text[before.end] == " "


def _kinds(found: list[str], names: Names) -> list[int]:
    """What each word is, looked up once for each."""
    known = names.kinds
    if len(known) > _KINDS:
        known = names.kinds = {}
    for word in set(found):
        if word not in known:
            known[word] = _kind(word, names)
    return list(map(known.__getitem__, found))


def _sort(text: str, word: Word, kind: int, marks: Landmarks) -> None:
    if kind & _PROGRAM:
        marks.programs.append(word)
    if kind & _VERB:
        marks.verbs.append(word)
    if kind & _CALLEE and text[word.end : word.end + 1] in _CALLED:
        marks.callees.append(word)
    if kind & _LOGIN:
        marks.logins.append(word)


def _kind(word: str, names: Names) -> int:
    """What a word may be, as a sum of kinds."""
    if len(word) > NAME:
        return 0
    kind = 0
    if bare := word.rstrip(".-_"):
        says, last = names.said(bare)
        kind = _NAME if says is not None or last else 0
    if word.removesuffix(".exe") in _PROGRAMS:
        kind |= _PROGRAM
    if word in _VERBS:
        kind |= _VERB
    if not _CALLEES.isdisjoint(words(word)):
        kind |= _CALLEE
    return kind | _LOGIN if word.lower().startswith(_LOGINS) else kind


def _anchor(text: str, start: int, word: str, names: Names) -> Anchor | None:
    name = word.rstrip(".-_")
    end = start + len(name)
    says, last = names.said(name)
    if last:
        says, start, name = _longer(text, start, name, says, names)
    if says is None or _inside_placeholder(text, start):
        return None
    if text[start - 1 : start] == "/" and text[max(0, start - 9) : start] in _DIGESTS:
        return None
    behind = _BEHIND.match(text, end)
    return Anchor(start, behind.end() if behind else end, name, says)


def _longer(
    text: str, start: int, name: str, says: str | None, names: Names
) -> tuple[str | None, int, str]:
    """The name with the words before it that make it one of a secret."""
    parts = _before(text, start)
    if not parts:
        return says, start, name
    for take in range(1, len(parts) + 1):
        whole = "_".join([*parts[-take:], name])
        if (found := names.find(whole)) and (found != "weak" or says is None):
            begun = start - len(" ".join(parts[-take:])) - 1
            return found, max(0, begun), whole.replace("_", " ")
    # `the key`, `any token`, `primary key`: what stands before may also make it none.
    own = "_".join([parts[-1], name])
    return (None if names.find(own) is None else says), start, name


def _before(text: str, start: int) -> list[str]:
    """The words before a name, at most three, with one blank or apostrophe behind each."""
    if text[start - 1 : start] not in _APART:
        return []
    parts: list[str] = []
    for part in reversed(_GAP.split(text[max(0, start - 48) : start - 1])):
        word = part if part.isalpha() else _WORD.search(part)
        if word is None:
            break
        parts.insert(0, word if isinstance(word, str) else word[0])
        if len(parts) == 3 or parts[0] != part:
            break
    return parts


def _inside_placeholder(text: str, start: int) -> bool:
    return text[start - 1 : start] == ":" and text[max(0, start - 10) : start] in (
        "[redacted:",
        "[withheld:",
    )
