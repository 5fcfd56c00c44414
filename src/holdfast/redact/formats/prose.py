"""Finds secrets in sentences: "the password is …", "mit dem Passwort …", "… as password"; and in
answers to a question that asks for a secret.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from ..names import HEADERS, SECRETS, SPOKEN, word_set
from ..spans import Bounds, masked
from ..values import DIGIT, Looks, is_plausible, is_strong, looks, random
from ..verdict import Syntax
from .keywords import Keywords, Pair, SecretName
from .literals import line_start, quoted

# ruff: noqa: E501 - a pattern is easier to read in one piece

_WORD = re.compile(
    r"([ \t\u00a0]{1,4}|[ \t]{0,4}\r?\n[ \t>]{0,4})([„“«\"'‘`(*]{0,3})[\u00a0 ]?([^\s„“”«»‘’\"`]{1,128})"
)
_LONGEST = 128  # characters of a word; a longer one is a value
_REST = re.compile(r"[^\s„“”«»‘’\"`]{1,65536}+")
_WORDS = 14  # words after the name that are read
_NEAR = 3  # words after one that announces the value
# The value follows these words.
_TELLS = word_set("""
is was are were be = : - – — equals becomes to from now still as with use using set called reads
says it's its that's ist war sind lautet lauten heißt wird auf von als mit nun jetzt est était
sont c'est devient à de avec comme par es era son é è sono sarà
of remains being typed entered try
""")
# After these words the sentence describes the secret and does not state it.
_STOPS = word_set("that which who because if when unless until must not never")
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
# The end of a sentence that announces a value, and the value on a line of its own.
_BELOW = re.compile(
    r"[^\n:]{0,120}(?::|(?<= is)|(?<= ist)|(?<= est))[ \t]{0,4}\r?\n(?:[ \t]{0,8}\r?\n)?[ \t>]{0,16}([^\s:=\"'(){}<>,;]{8,256})[ \t]{0,4}\r?(?:\n|\Z)"
)
_LINE = re.compile(r"([^\s]{6,256})[ \t]{0,4}\r?(?:\n|\Z)")
_MORE = re.compile(r"[ \t]{0,16}([^\s:=\"'(){}<>,;]{8,256})[ \t]{0,4}\r?(?:\n|\Z)")
_PROMPT = re.compile(r"[^\n$#>%]{0,40}[$#>%][ ]")
_LINES = 32  # values below the name
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
_LISTED = re.compile(r"(?<![\w.-])(?!\d{1,2}[.):])[\w]{4,12}(?:[ -][\w]{4,12}){0,3}(?![\w:])")
_GROUPED = re.compile(r"(?=\w*\d)\w{4,8}(?:-\w{4,8}){1,4}")
_SAYS = (":", ":\r", ": ", " is", " ist", " est")
_IN_COMMAND = (" ", "\n", "\r", "}", '"', "'", "/")
_SIGNS = re.compile(r"[!?&+#%]")


def prose(text: str, found: Keywords) -> Iterator[Pair]:
    """Find the secrets that sentences state."""
    names = found.names
    asks = "?" in text
    for n, name in enumerate(names):
        if name.says not in SECRETS or name.words[-1] in HEADERS:
            continue
        yield from _stated(text, name, names[n + 3].start if n + 3 < len(names) else len(text))
        if asks and not text.startswith((":", "=", "(", "[", "."), name.end):
            yield from _answered(text, name)
        yield from _below(text, name)
        yield from _stated_before(text, name)
    for word in found.logins:
        if login := _LOGIN.match(text, word.start):
            yield from _login(text, login.end())


def _pair(name: SecretName, span: Bounds) -> Pair:
    return Pair(*span, name.name, "key" if name.says == "weak" else name.says, Syntax.PROSE)


def _stated_before(text: str, name: SecretName) -> Iterator[Pair]:
    """Find values that a sentence states before their name: `… is the password`, `use … as
    password`."""
    if not _LEAD.search(text, max(0, name.start - 40), name.start):
        return
    for pattern in (_AS, _USE):
        before = pattern.search(text, max(0, name.start - 160), name.start)
        if before and is_strong(before[1].rstrip(".,;:")):
            start = before.start(1)
            yield _pair(name, (start, start + len(before[1].rstrip(",;:"))))


def _below(text: str, name: SecretName) -> Iterator[Pair]:
    """Find values on lines of their own: after a sentence that announces them, or printed by a
    command.
    """
    end = text.find("\n", name.end, name.end + 160)
    if end < 0:
        return
    if name.words[-1] == "codes":
        yield from _codes(text, name, end)
    elif text.endswith(_SAYS, name.end, end):
        yield from _announced(text, name)
    elif text[name.end] in _IN_COMMAND:
        printed = _LINE.match(text, end + 1)
        prompt = _PROMPT.match(text, line_start(text, name.start, 256), name.start)
        if prompt and printed and is_plausible(printed[1]) and "/" not in printed[1]:
            yield _pair(name, printed.span(1))


def _announced(text: str, name: SecretName) -> Iterator[Pair]:
    found = _BELOW.match(text, name.end)
    if not found:
        return
    value = found[1]
    slug = "-" in value and looks(value) is Looks.WORD and name.says == "key"
    if not (slug or random(value) or is_strong(value) or _GROUPED.fullmatch(value)):
        return
    for _ in range(_LINES):
        yield _pair(name, found.span(1))
        found = _MORE.match(text, found.end())
        if found is None or len(found[1]) != len(value):
            return


def _codes(text: str, name: SecretName, at: int) -> Iterator[Pair]:
    """Find codes below their name, in lines and columns."""
    end = text.find("\n\n", at + 2, at + 1024)
    for code in _LISTED.finditer(text, at, end if end > 0 else min(len(text), at + 1024)):
        if not DIGIT.search(code[0]):
            return
        yield _pair(name, code.span())


def _stated(text: str, name: SecretName, limit: int) -> Iterator[Pair]:
    """Find the value that a sentence states after its name: the next word, or a word that follows a
    phrase such as "is"."""
    at, near, sentences, lines, leading = name.end, 0, 0, 0, 0
    if text.startswith(("s", "'", ")", "“", "”"), at):
        at += 1
    if not text.startswith((" ", "\t", "\n", ":", "=", ",", "\u00a0"), at):
        return
    if text[at] in ":=," and text.startswith((" ", "\n", "\t"), at + 1):
        near, at = _NEAR * (text[at] != ","), at + 1
    for n in range(_WORDS):
        found = _WORD.match(text, at) if at < limit else None
        if found is None or ("\n" in found[1] and (lines or near != _NEAR)):
            return
        lines += "\n" in found[1]
        word, at = found[3], found.end()
        if masked(word) or word[0] in "{[<":
            return  # it is redacted already, or this is code
        if n == 0 and DIGIT.fullmatch(word):  # `password 7 …` says how it is encrypted
            leading = 1
            continue
        if span := _value(text, name, found, near, first=n == leading):
            yield _pair(name, span)
            return
        small = word.lower()
        if small.rstrip(",") in _STOPS or sentences > 1:
            return
        sentences += word[-1] in ".!?;" and len(word) > 1
        announces = small.rstrip(":") in _TELLS or (word[-1] == ":" and not lines)
        near = _NEAR if announces else max(0, near - 1)
        if text.startswith(('"', "'", "”", "“", "’", "»", "`"), at):
            at += 1


def _value(
    text: str, name: SecretName, found: re.Match[str], near: int, *, first: bool
) -> Bounds | None:
    """Return the span of the value if this word is the value, otherwise None."""
    if not (near or first):
        return None
    quote = found[2].strip("*")
    if quote and (literal := quoted(text, found.start(2))):
        value = text[literal.start : literal.end].strip()
        if " " in value:
            spoken = looks(value) is Looks.PHRASE and SPOKEN & set(name.words)
            return literal.span if spoken else None
    start, end = found.span(3)
    if end - start == _LONGEST and (rest := _REST.match(text, end)):
        end = rest.end()
    start, end = _bare(text, start, end)
    said = name.words
    announced = near >= _NEAR - 1 and (not _CODED.isdisjoint(said) or name.says == "key")
    if (announced or (first and said[-1] in _PINS)) and (code := _CODE.match(text, start)):
        return code.span()
    value = text[start:end]
    if name.says == "weak":
        return (start, end) if (first or near == _NEAR) and is_strong(value) else None
    if near != _NEAR and not quote:
        user = first and _USER.search(text, max(0, name.start - 60), name.start)
        return (start, end) if is_strong(value) or (user and is_plausible(value)) else None
    slug = quote and near and name.says == "key" and "-" in value and looks(value) is Looks.WORD
    if slug or is_plausible(value):
        return start, end
    if near and (login := _SLASH.match(text, start)) and login.end() > end:
        password = _END.match(text, login.end())
        start, end = _bare(text, *password.span()) if password else (end, end)
        return (start, end) if is_plausible(text[start:end]) else None
    return None


def _answered(text: str, name: SecretName) -> Iterator[Pair]:
    """Find the answer to a question that asks for a secret, if the answer is short and contains a
    secret.
    """
    asked = _ANSWER.match(text, name.end)
    message = _MESSAGE.match(text, asked.end()) if asked else None
    if message is None or len(message[0].split()) > 6:
        return
    for word in _END.finditer(text, *message.span()):
        start, end = _bare(text, *word.span())
        if is_plausible(text[start:end]):
            yield _pair(name, (start, end))
            return


def _login(text: str, at: int) -> Iterator[Pair]:
    """Find the credentials in a sentence about logging in: `log in with anna / …`."""
    line = text.find("\n", at, at + 120)
    stop = line if line >= 0 else min(len(text), at + 120)
    for word in itertools.islice(_END.finditer(text, at, stop), 7):
        start, end = _bare(text, *word.span())
        if text[start:end] in ("to", "um", "pour", "for"):
            return
        if is_strong(text[start:end]) and "@" not in text[start + 1 : end]:
            yield Pair(start, end, "password", "key", Syntax.PROSE)
            return


def _bare(text: str, start: int, end: int) -> Bounds:
    """Return the word without punctuation at its end."""
    while end > start and text[end - 1] in ".,;:)]}'’*":
        end -= 1
    if end > start and text[end - 1] in "!?" and not _SIGNS.search(text, start, end - 1):
        end -= not text[end - 2].isdigit()
    return start, end
