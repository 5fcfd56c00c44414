"""Finds secrets in source code: literals that follow the name of a secret in calls, default values
and setters, and literals in calls that log in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..names import listed, words
from ..spans import Span
from ..values import NO_SECRET, is_strong, looks
from ..verdict import Syntax
from .keywords import Candidates, Keywords, Pair, SecretName
from .literals import literals, quoted, run
from .pairs import KEY

# ruff: noqa: E501 - a pattern is easier to read in one piece

# Between a name in quotes and its value: `("password", "…")`, `getenv("X") or "…"`.
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
# After a name without quotes: `process.env.SECRET || "…"`, `SECRET, "…"`.
_ELSE = re.compile(
    r"[)\]]{0,2}\s{0,4}(?:\|\||\?\?=?|\?:|\bor\b|\belse\b)\s{0,4}|\{(?=[\"'])|,\s{1,4}(?=[\"'])"
)
_DEFINED = re.compile(r"#[ ]{0,4}define[ \t]{1,8}\Z")
_CAST = re.compile(r"[ \t]{1,32}\(?(?:\([\w *]{1,32}\)\s?)?")
_SHELL = re.compile(r":?[-=:](?!\?)")
_CALL = re.compile(r"(?:Async)?\((?=\s{0,8}[^)\s])")
_BETWEEN = re.compile(r"[^\"'`)\r\n]{0,80}")
_ARGUMENT = re.compile(r"[^\"'`()\r\n]{0,80}")
# The text between the name of a function or class and its arguments.
_CALLED = re.compile(r"(?:(?:::|->)\w{1,48}){0,3}\s?(?:=\s?)?\((?=[^)])")
# Code that reads a variable with a default, which is a value.
_ENV = re.compile(r"(?i:env\w{0,16}|config)(?:\.(?:get|fetch))?[(\[]\s{0,4}[\"'`]\Z")
_SEPARATOR = re.compile(r"\.|::|->")
# Functions whose second or third literal is a password.
_SIGNATURES = {
    **dict.fromkeys(
        listed("getconnection mysqliconnect mysqli pdo construct ldapbind createsuperuser"), 3
    ),
    **dict.fromkeys(
        listed(
            """
login basicauth httpbasicauth usernamepasswordcredentials networkcredential setbasicauth simplebinds
passwordcredentials algoliasearch httpdigestauth setcredentials begin createuser
"""
        ),
        2,
    ),
}
_USER = re.compile(r"[\w.@+-]{1,64}:")
_ALGORITHM = re.compile(r"(?i:sha\d|md5|hs\d|rs\d|es\d|aes|utf)")


def code(text: str, found: Keywords) -> Candidates:
    """Find literals that are values of names in code."""
    for name in found.names:
        yield from _named(text, name)
    for callee in found.callees if "(" in text else ():
        if call := _CALLED.match(text, callee.end):
            name_of_call = text[callee.start : call.end()].rstrip("( =").lower()
            last = _SEPARATOR.split(name_of_call)[-1].replace("_", "")
            yield from _call(text, call.end(), _SIGNATURES.get(last, 0))


def _call(text: str, at: int, place: int) -> Candidates:
    """Find the arguments of an authentication function that look like secrets. The argument at
    `place` is a password even if it does not look like a password.
    """
    first = _BETWEEN.match(text, at)
    for n, literal in enumerate(literals(text, first.end(), _BETWEEN, 6) if first else ()):
        value = text[literal.start : literal.end]
        if len(value) > 256:
            return
        login = _USER.match(value)
        start = login.end() if login and is_strong(value[login.end() :]) else 0
        if n + 1 == place and text[literal.after : literal.after + 4].lstrip()[:1] in (")", ","):
            if looks(value) not in NO_SECRET:
                yield Span(*literal.span, "key")
        elif " " not in value and is_strong(value[start:]) and not _ALGORITHM.match(value):
            yield Pair(literal.start + start, literal.end, "password", "key", Syntax.CALL)


def _named(text: str, name: SecretName) -> Iterator[Pair]:
    at, literal, syntax = name.end, None, Syntax.CALL
    if text.startswith(("]'", ']"'), at):
        at += 1
    if text.startswith(('"', "'", "`"), at):
        for between in (_NEXT.match(text, at), _KEYWORD.match(text, at)):
            if between and (literal := quoted(text, between.end())):
                syntax = _next_syntax(text, name, between[0])
                break
        if literal and KEY.match(text, literal.after):
            return
    elif other := _ELSE.match(text, at):
        literal = quoted(text, other.end())
    elif _CALL.match(text, at):
        yield from _arguments(text, name)
    elif text.endswith("${", 0, name.start) and (default := _SHELL.match(text, at)):
        start, end = run(text, default.end())
        close = text.find("}", start, start + 256)
        yield name.pair((start, close if close > start else end), Syntax.QUOTED)
    elif _DEFINED.search(text, max(0, name.start - 16), name.start):
        cast = _CAST.match(text, at)
        literal, syntax = quoted(text, cast.end()) if cast else None, Syntax.QUOTED
    elif name.says != "weak" and text.startswith((" ", "\t"), at):
        literal = quoted(text, at + 1) if text.startswith(('"', "'"), at + 1) else None
    if literal:
        yield name.pair(literal.span, syntax)


def _next_syntax(text: str, name: SecretName, between: str) -> Syntax:
    """Return the syntax of the literal that follows a quoted name."""
    if text.endswith("--", 0, name.start):
        return Syntax.OPTION  # two words of a command
    read = ")" not in between and _ENV.search(text, max(0, name.start - 40), name.start)
    return Syntax.QUOTED if read else Syntax.CALL


def _arguments(text: str, name: SecretName) -> Iterator[Pair]:
    """Find the literals among the arguments of a function that is named like a secret."""
    setter = text.endswith(".", 0, name.start) or "." in name.name
    said = words(name.name.rpartition(".")[2])
    plain = len(said) == 1 or (len(said) == 2 and said[0] in ("set", "with"))
    syntax = Syntax.QUOTED if setter and plain else Syntax.CALL
    first = _ARGUMENT.match(text, text.index("(", name.end) + 1)
    for literal in literals(text, first.end(), _ARGUMENT, 3) if first else ():
        yield name.pair(literal.span, syntax)
