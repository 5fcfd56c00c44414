"""Source code: literals that a call is given beside the name of a secret, defaults, setters, logins."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..judge import Place
from ..names import words
from ..spans import Span
from ..values import NO_SECRET, looks
from .landmarks import Anchor, Landmarks
from .literal import quoted, run
from .pairs import KEY, Pair
from .prose import strong

# ruff: noqa: E501 - a pattern is easier to read in one piece

# Between a name in quotes and the literal that is its value: `("password", "…")`, `getenv("X") or "…"`.
_NEXT = re.compile(
    r"[\"'`]\s{0,4}[)\]]{0,3}[ \t]{0,4}\n?[ \t]{0,40}"
    r"(?:(?:,|\|\||\?\?=?|\?:|:-|\bor\b|=>|\{|\.\w{1,32}\()\s{0,32}){1,3}"
    r"(?:(?:default|fallback|def|value|default_value|defaultValue|with|to|pw|pass)\s{0,2}[=:]\s{0,2})?"
    r"(?:\|\w{0,8}\|\s{0,2}|\(\)\s{0,2}=>\s{0,2}|[bBrRuUfF@](?=[\"'])|[A-Z]\w{0,32}\((?=[\"']))?"
)
_KEYWORD = re.compile(
    r"[\"'`]\s{0,4},[^\"'`\r\n]{0,80}?(?:[\"'][\w. -]{0,40}[\"'],?[^\"'`\r\n]{0,40}?)?\b(?:default|fallback|value|default_value|defaultValue)"
    r"\s{0,2}[=:]\s{0,2}"
)
# Behind a name without quotes: `process.env.SECRET || "…"`, `${SECRET:-…}`, `#define SECRET "…"`.
_ELSE = re.compile(r"[)\]]{0,2}\s{0,4}(?:\|\||\?\?=?|\?:|\bor\b|\belse\b)\s{0,4}")
_BESIDE = re.compile(r"\{(?=[\"'])|,\s{1,4}(?=[\"'])")
_BLANK = re.compile(r"[ \t](?=[\"'])")
_DEFINED = re.compile(r"#[ ]{0,4}define[ \t]{1,8}\Z")
_CAST = re.compile(r"[ \t]{1,32}\(?(?:\([\w *]{1,32}\)\s?)?")
_SHELL = re.compile(r":?[-=:](?!\?)")
_CALL = re.compile(r"(?:Async)?\((?=\s{0,8}[^)\s])")
_BETWEEN = re.compile(r"[^\"'`)\r\n]{0,80}")
_ARGUMENT = re.compile(r"[^\"'`()\r\n]{0,80}")
# Behind the name of a function, or of its class, until its arguments.
_CALLED = re.compile(r"(?:(?:::|->)\w{1,48}){0,3}\s?(?:=\s?)?\((?=[^)])")
# What reads a variable, whose default is a value like any other.
_ENV = re.compile(r"(?i:env\w{0,16}|config)(?:\.(?:get|fetch))?[(\[]\s{0,4}[\"'`]\Z")
_SEPARATOR = re.compile(r"\.|::|->")
# Functions that take a password by its place among literals.
_SIGNATURES = {
    **dict.fromkeys(
        ("getconnection", "mysqliconnect", "mysqli", "pdo", "construct", "ldapbind"), 3
    ),
    **dict.fromkeys(("login", "basicauth", "httpbasicauth", "usernamepasswordcredentials"), 2),
    **dict.fromkeys(("networkcredential", "setbasicauth", "simplebinds", "passwordcredentials"), 2),
    **dict.fromkeys(("createsuperuser",), 3),
    **dict.fromkeys(("algoliasearch",), 2),
    **dict.fromkeys(("httpdigestauth", "setcredentials", "begin", "createuser"), 2),
}
_USER = re.compile(r"[\w.@+-]{1,64}:")
_ALGORITHM = re.compile(r"(?i:sha\d|md5|hs\d|rs\d|es\d|aes|utf)")


def code(text: str, marks: Landmarks) -> Iterator[Pair | Span]:
    """Literals that are values of names in code."""
    for anchor in marks.names:
        yield from _anchored(text, anchor)
    if "(" in text:
        for callee in marks.callees:
            if call := _CALLED.match(text, callee.end):
                name = text[callee.start : call.end()].rstrip("( =").lower()
                last = _SEPARATOR.split(name)[-1].replace("_", "")
                yield from _about(text, call.end(), _SIGNATURES.get(last, 0))


def _about(text: str, at: int, place: int) -> Iterator[Pair | Span]:
    """The literals of a call about access that look like secrets by themselves; the one at `place`
    is a password whatever it looks like."""
    for n in range(6):
        gap = _BETWEEN.match(text, at)
        literal = quoted(text, gap.end()) if gap else None
        if literal is None or literal.end - literal.start > 256:
            return
        value = text[literal.start : literal.end]
        login = _USER.match(value)
        start = literal.start + (login.end() if login and strong(value[login.end() :]) else 0)
        if n + 1 == place and text[literal.after : literal.after + 4].lstrip()[:1] in (")", ","):
            if looks(value) not in NO_SECRET:
                yield Span(literal.start, literal.end, "key")
        elif " " not in value and strong(text[start : literal.end]) and not _ALGORITHM.match(value):
            yield Pair(start, literal.end, "password", "key", Place.CALL)
        at = literal.after


def _anchored(text: str, anchor: Anchor) -> Iterator[Pair]:
    at = anchor.end
    if text[at : at + 1] == "]" and text[at + 1 : at + 2] in ("'", '"'):
        at += 1
    if text[at : at + 1] in ('"', "'", "`"):
        for between in (_NEXT.match(text, at), _KEYWORD.match(text, at)):
            if between and (literal := quoted(text, between.end())):
                if not KEY.match(text, literal.after):
                    place = _next_place(text, anchor, between[0])
                    yield _made(anchor, literal.start, literal.end, place)
                return
    elif otherwise := _ELSE.match(text, at):
        if literal := quoted(text, otherwise.end()):
            yield _made(anchor, literal.start, literal.end, Place.CALL)
    elif beside := _BESIDE.match(text, at):
        if literal := quoted(text, beside.end()):
            yield _made(anchor, literal.start, literal.end, Place.CALL)
    elif _CALL.match(text, at):
        yield from _arguments(text, anchor)
    elif text[anchor.start - 2 : anchor.start] == "${" and (default := _SHELL.match(text, at)):
        start, end = run(text, default.end())
        close = text.find("}", start, start + 256)
        yield _made(anchor, start, close if close > start else end, Place.QUOTED)
    elif _DEFINED.search(text, max(0, anchor.start - 16), anchor.start):
        cast = _CAST.match(text, at)
        if cast and (literal := quoted(text, cast.end())):
            yield _made(anchor, literal.start, literal.end, Place.QUOTED)
    elif anchor.says != "weak" and _BLANK.match(text, at) and (literal := quoted(text, at + 1)):
        yield _made(anchor, literal.start, literal.end, Place.CALL)


def _next_place(text: str, anchor: Anchor, between: str) -> Place:
    """How the literal behind a name in quotes stands there."""
    if text[anchor.start - 2 : anchor.start] == "--":
        return Place.OPTION  # two words of a command
    read = ")" not in between and _ENV.search(text, max(0, anchor.start - 40), anchor.start)
    return Place.QUOTED if read else Place.CALL


def _arguments(text: str, anchor: Anchor) -> Iterator[Pair]:
    """The literals that a call named like a secret is given."""
    at = text.index("(", anchor.end) + 1
    for _ in range(3):
        gap = _ARGUMENT.match(text, at)
        literal = quoted(text, gap.end()) if gap else None
        if literal is None:
            return
        setter = text[anchor.start - 1 : anchor.start] == "." or "." in anchor.name
        said = words(anchor.name.rpartition(".")[2])
        plain = len(said) == 1 or (len(said) == 2 and said[0] in ("set", "with"))
        place = Place.QUOTED if setter and plain else Place.CALL
        yield _made(anchor, literal.start, literal.end, place)
        at = literal.after


def _made(anchor: Anchor, start: int, end: int, place: Place) -> Pair:
    return Pair(start, end, anchor.name, anchor.says, place)
