"""Sentences that tell a secret: "the password is …", "mit dem Passwort …", "… as password"; and the answer to a
question for one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..judge import Place
from ..names import SECRETS, SPOKEN, listed, words
from ..spans import masked
from ..values import DIGIT, LONGEST, Looks, looks, mixed, random
from .landmarks import Anchor, Landmarks
from .literal import quoted
from .pairs import HEADERS, Pair

# ruff: noqa: E501 - a pattern is easier to read in one piece

_WORD = re.compile(
    r"([ \t\u00a0]{1,4}|[ \t]{0,4}\r?\n[ \t>]{0,4})([„“«\"'‘`(*]{0,3})[\u00a0 ]?([^\s„“”«»‘’\"`]{1,128})"
)
_LONGEST = 128  # characters of a word; a longer one is a value
_REST = re.compile(r"[^\s„“”«»‘’\"`]{1,65536}+")
_WORDS = 14  # behind the name
_NEAR = 3  # words behind one that tells
# Behind these stands the value.
_TELLS = frozenset(
    listed(
        """
is was are were be = : - – — equals becomes to from now still as with use using set called reads
says it's its that's ist war sind lautet lauten heißt wird auf von als mit nun jetzt est était
sont c'est devient à de avec comme par es era son é è sono sarà
of remains being typed entered try
"""
    )
)
# Behind these it says something about the secret.
_STOPS = frozenset(
    listed(
        """
that which who because if when unless until must not never
"""
    )
)
_ARTICLE = (
    r"(?:(?:the|your|my|our|a|an|new|das|dein|mein|unser|Ihr|der|die|le|mon|ton|votre|notre|la|ma|el|mi|su"
    r"|il|o|a)[ \t]{1,3}){0,2}[\w ]{0,24}"
)
_AS = re.compile(
    r"([^\s\"'„“”«»‘’`(]{6,128})[ \u00a0]?[\"'“”»’`)]{0,2}[ \t]{1,3}(?:as|als|comme|como|come|is|was|ist|war|est|es)"
    rf"[ \t]{{1,3}}{_ARTICLE}\Z"
)
_USE = re.compile(
    r"(?i:\b(?:use|type|enter|try|put|gib|nimm|utilise[rz]?|tape[rz]?))[ ]{1,2}[\"'“„«`]?([^\s\"'”“»`]{6,128})"
    r"[\"'”“»`]?[ ][^.\n]{0,48}\Z"
)
# A sentence that announces it ends with a colon, and the value stands on a line of its own.
_BELOW = re.compile(
    r"[^\n:]{0,120}(?::|(?<= is)|(?<= ist)|(?<= est))[ \t]{0,4}\r?\n(?:[ \t]{0,8}\r?\n)?[ \t>]{0,16}([^\s:=\"'(){}<>,;]{8,256})[ \t]{0,4}\r?(?:\n|\Z)"
)
_LINE = re.compile(r"([^\s]{6,256})[ \t]{0,4}\r?(?:\n|\Z)")
_MORE = re.compile(r"[ \t]{0,16}([^\s:=\"'(){}<>,;]{8,256})[ \t]{0,4}\r?(?:\n|\Z)")
_PROMPT = re.compile(r"[^\n$#>%]{0,40}[$#>%][ ]")
_LINES = 32  # of codes below their name
_LEAD = re.compile(r" (?:a(?:s|ls|t)|com(?:me|o|e)|is|was|ist|es|est|for|when|pour|für) ")
_SLASH = re.compile(r"[\w.@+-]{1,64}[ ]{0,2}(?:[/:|]|and|und|et|y|e)[ ]{0,2}(?=\S{4})")
_USER = re.compile(
    r"(?i:user|login|benutzer|utilisateur|account|usuario|konto|compte|utente|e-?mail)"
)
_ANSWER = re.compile(
    r"[^\n?=({]{0,80}\?[^\n]{0,40}\n(?:\s{0,8}(?:\[[^\]\n]{1,32}\]\s?|\d{1,2}:\d\d\s))?(?:[ \t]{0,8}[@<]?[\w .-]{1,24}[:>]\s?|[-*>]\s)?"
)
_MESSAGE = re.compile(r"[^\n]{1,160}")
_LOGIN = re.compile(
    r"(?i:(?:log|sign)(?:ged|ging)?[ -]?(?:in|on)|login|logge?[ ]dich|credentials?|access|einloggen|anmeld\w{0,4}|melde|connecter"
    r"|connexion)\b(?:[^\n.!?]|[.](?=\S)){0,80}?\b(?:with|using|mit|avec|as|als|con|com)[ ]"
)
_CODE = re.compile(
    r"(?:\d{3}[ -]?\d{3}|\d{2,4}(?:-\d{2,4}){1,3}|\d{4,8})(?![\w:/%-]|\.\d| ?(?:char|zeich|min|sec|sek|day|tag|hour|stund|letter|digit|user|bit|byte))"
)
_PINS = {"pin", "puk", "otp", "tan"}
_CODED = {"pin", "puk", "otp", "code", "passcode", "tan", "mfa", "2fa"}
_END = re.compile(r"[^\s\"'„“”«»‘’`]{1,128}")


def prose(text: str, marks: Landmarks) -> Iterator[Pair]:
    """Secrets that a sentence tells."""
    found = marks.names
    asks = "?" in text
    for n, anchor in enumerate(found):
        if anchor.says not in SECRETS or words(anchor.name)[-1] in HEADERS:
            continue
        yield from _told(text, anchor, found[n + 3].start if n + 3 < len(found) else len(text))
        if asks and text[anchor.end : anchor.end + 1] not in (":", "=", "(", "[", "."):
            yield from _answered(text, anchor)
        yield from _below(text, anchor)
        yield from _said_before(text, anchor)
    if not text.isascii():
        for spoken in _UNSPACED.finditer(text):
            if telling(spoken[1]):
                yield Pair(*spoken.span(1), "password", "key", Place.PROSE)
    for use in _TO_LOG_IN.finditer(text) if " to log" in text or " to sign" in text else ():
        if telling(use[1]):
            yield Pair(*use.span(1), "password", "key", Place.PROSE)
    for word in marks.logins:
        if login := _LOGIN.match(text, word.start):
            yield from _login(text, login.end())


# Languages without blanks between words.
_UNSPACED = re.compile(
    r"(?:密码|密碼|口令|パスワード|暗証番号|비밀번호|암호)(?:是|为|為|は|는|은)?[:：]?\s?[「『\"']?([!-~]{6,64})"
)


def _said_before(text: str, anchor: Anchor) -> Iterator[Pair]:
    """`… is the password`, `use … as password`."""
    if text[anchor.start - 1 : anchor.start] != " ":
        return
    if not _LEAD.search(text, max(0, anchor.start - 40), anchor.start):
        return
    for pattern in (_AS, _USE):
        before = pattern.search(text, max(0, anchor.start - 160), anchor.start)
        if before and strong(before[1].rstrip(".,;:")):
            start = before.start(1)
            yield _made(anchor, start, start + len(before[1].rstrip(",;:")))


def _below(text: str, anchor: Anchor) -> Iterator[Pair]:
    """Values on lines of their own: behind a sentence that ends with a colon, and what a command
    prints."""
    end = text.find("\n", anchor.end, anchor.end + 160)
    if end < 0:
        return
    if words(anchor.name)[-1] == "codes":
        yield from _codes(text, anchor)
    elif text[end - 1] == ":" or text[end - 2] == ":" or text.endswith(_SAYS, anchor.end, end):
        yield from _announced(text, anchor)
    elif text[anchor.end] in _IN_COMMAND:
        printed = _LINE.match(text, end + 1)
        if printed and telling(printed[1]) and "/" not in printed[1]:
            begun = text.rfind("\n", max(0, anchor.start - 256), anchor.start) + 1
            if _PROMPT.match(text, begun, anchor.start):
                yield _made(anchor, *printed.span(1))


def _announced(text: str, anchor: Anchor) -> Iterator[Pair]:
    found = _BELOW.match(text, anchor.end)
    if not found:
        return
    slug = "-" in found[1] and looks(found[1]) is Looks.WORD and anchor.says == "key"
    if not (slug or random(found[1]) or strong(found[1]) or _GROUPED.fullmatch(found[1])):
        return
    size = len(found[1])
    for _ in range(_LINES):
        yield _made(anchor, *found.span(1))
        found = _MORE.match(text, found.end())
        if found is None or len(found[1]) != size:
            return


def _codes(text: str, anchor: Anchor) -> Iterator[Pair]:
    """Codes below their name, in lines and columns."""
    at = text.find("\n", anchor.end)
    end = text.find("\n\n", at + 2, at + 1024)
    for code in _LISTED.finditer(text, at, end if end > 0 else min(len(text), at + 1024)):
        if not DIGIT.search(code[0]):
            return
        yield _made(anchor, *code.span())


_LISTED = re.compile(r"(?<![\w.-])(?!\d{1,2}[.):])[\w]{4,12}(?:[ -][\w]{4,12}){0,3}(?![\w:])")
_TO_LOG_IN = re.compile(
    r"(?i:use|try|enter|type) [\"'“„]?([^\s\"'”“]{6,64})[\"'”“]? to (?:log|sign)"
)
_GROUPED = re.compile(r"(?=\w*\d)\w{4,8}(?:-\w{4,8}){1,4}")
_SAYS = (" is", " ist", " est")
_IN_COMMAND = (" ", "\n", "\r", "}", '"', "'", "/")


def _told(text: str, anchor: Anchor, limit: int) -> Iterator[Pair]:
    """The value behind the name: the next word, or the one behind a word that tells."""
    at, told, sentences, lines, leading = anchor.end, 0, 0, 0, 0
    if text[at : at + 1] in ("s", "'", ")", "“", "”"):
        at += 1
    if text[at : at + 1] not in (" ", "\t", "\n", ":", "=", ",", "\u00a0"):
        return
    if text[at] in ":=," and text[at + 1 : at + 2] in (" ", "\n", "\t"):
        told, at = _NEAR * (text[at] != ","), at + 1
    for n in range(_WORDS):
        found = _WORD.match(text, at) if at < limit else None
        if found is None or ("\n" in found[1] and (lines or told != _NEAR)):
            return
        lines += "\n" in found[1]
        word, quote, at = found[3], found[2].strip("*"), found.end()
        if masked(word) or word[0] in "{[<":
            return  # it was told, and is gone; or this is code
        if n == 0 and DIGIT.fullmatch(word):  # `password 7 …`, how it is encrypted
            leading = 1
            continue
        if span := _value(text, anchor, found, told, quote, first=n == leading):
            yield _made(anchor, *span)
            return
        small = word.lower()
        if small.rstrip(",") in _STOPS or sentences > 1:
            return
        sentences += word[-1] in ".!?;" and len(word) > 1
        told = (
            _NEAR
            if small.rstrip(":") in _TELLS or (word[-1] == ":" and not lines)
            else max(0, told - 1)
        )
        if text[at : at + 1] in ('"', "'", "”", "“", "’", "»", "`"):
            at += 1


def _value(
    text: str, anchor: Anchor, found: re.Match[str], told: int, quote: str, *, first: bool
) -> tuple[int, int] | None:
    """Where the value stands, if this word is it."""
    if not (told or first):
        return None
    if quote and (literal := quoted(text, found.start(2))):
        value = text[literal.start : literal.end].strip()
        if " " in value:
            spoken = looks(value) is Looks.PHRASE and SPOKEN & set(words(anchor.name))
            return (literal.start, literal.end) if spoken else None
    start, end = found.span(3)
    if end - start == _LONGEST and (rest := _REST.match(text, end)):
        end = rest.end()
    start, end = _bare(text, start, end)
    coded = bool(_CODED & set(words(anchor.name)))
    announced = told >= _NEAR - 1 and (coded or anchor.says == "key")
    announced = announced or (first and words(anchor.name)[-1] in _PINS)
    if announced and (code := _CODE.match(text, start)):
        return code.span()
    value = text[start:end]
    if anchor.says == "weak":
        return (start, end) if (first or told == _NEAR) and strong(value) else None
    if told == _NEAR or quote:
        if telling(value):
            return start, end
        if quote and told and anchor.says == "key" and "-" in value and looks(value) is Looks.WORD:
            return start, end
        if told and (pair := _SLASH.match(text, start)) and pair.end() > end:
            start, end = _bare(text, pair.end(), _stop(text, pair.end()))
            return (start, end) if telling(text[start:end]) else None
        return None
    if first and telling(value) and _USER.search(text, max(0, anchor.start - 60), anchor.start):
        return start, end
    return (start, end) if strong(value) else None


def _answered(text: str, anchor: Anchor) -> Iterator[Pair]:
    """The message behind a question for a secret, if it is short and holds one."""
    asked = _ANSWER.match(text, anchor.end)
    message = _MESSAGE.match(text, asked.end()) if asked else None
    if message is None or len(message[0].split()) > 6:
        return
    for word in _END.finditer(text, *message.span()):
        start, end = _bare(text, *word.span())
        if telling(text[start:end]):
            yield _made(anchor, start, end)
            return


def _login(text: str, at: int) -> Iterator[Pair]:
    """`log in with anna / …`: what a sentence says to sign in with."""
    line = text.find("\n", at, at + 120)
    for n, word in enumerate(
        _END.finditer(text, at, line if line >= 0 else min(len(text), at + 120))
    ):
        start, end = _bare(text, *word.span())
        if n > 6 or text[start:end] in ("to", "um", "pour", "for"):
            return
        if strong(text[start:end]) and "@" not in text[start + 1 : end]:
            yield Pair(start, end, "password", "key", Place.PROSE)
            return


def _stop(text: str, at: int) -> int:
    found = _END.match(text, at)
    return found.end() if found else at


def _bare(text: str, start: int, end: int) -> tuple[int, int]:
    """The word without what ends a sentence or a clause."""
    while end > start and text[end - 1] in ".,;:)]}'’*":
        end -= 1
    if (
        end > start
        and text[end - 1] in "!?"
        and not any(c in "!?&+#%" for c in text[start : end - 1])
    ):
        end -= not text[end - 2].isdigit()
    return start, end


def telling(value: str) -> bool:
    """Whether it can be a secret where the sentence says that one comes."""
    value = value[:LONGEST]
    if _OTHER.search(value) or (value.count("/") > 1 and not random(value)):
        return False
    shape = looks(value)
    if shape is Looks.ID:
        return True
    if not any(c.isdigit() for c in value):
        return (shape is Looks.RANDOM and len(value) >= 24) or _MARKED.fullmatch(value) is not None
    return shape is Looks.RANDOM or (shape is Looks.MIXED and (mixed(value) or _counted(value)))


# An address, a reference, a place in a file, code.
_OTHER = re.compile(
    r"://|^[$%{<]|\.\w{1,4}:\d|\(|'\)|^[\w.+-]+@[\w-]+\.[\w.]+$|^--?\w|^\w+\[|=>|;$"
)


# Letters with a mark among them that no word has.
_MARKED = re.compile(r"(?=.{6,64}\Z)[^\W\d_]{2,}[!#$^~+][^\W\d_]{2,}[!#$^~+]{0,2}")


def _counted(value: str) -> bool:
    letters = value.rstrip("0123456789")
    return 4 <= len(letters) < len(value) and letters.rstrip("-_").isalpha()


def strong(value: str) -> bool:
    """Whether it is a secret though nothing says that one comes: digits among letters, and marks or
    capitals, as no word has them."""
    if _OTHER.search(value) or looks(value) not in (Looks.MIXED, Looks.RANDOM):
        return False
    if not mixed(value):
        return _MARKED.fullmatch(value) is not None
    marks = sum(1 for c in value if not c.isalnum())
    capitals = any(c.isupper() for c in value) and any(c.islower() for c in value)
    leet = re.search(r"[a-z]\d[a-z]", value, re.IGNORECASE) is not None
    if value.count("/") > 1 or value.count(".") > 1:
        return random(value) and capitals
    return (marks > 0 and (leet or capitals)) or (capitals and leet) or (random(value) and capitals)


def _made(anchor: Anchor, start: int, end: int) -> Pair:
    return Pair(
        start, end, anchor.name, "key" if anchor.says == "weak" else anchor.says, Place.PROSE
    )
