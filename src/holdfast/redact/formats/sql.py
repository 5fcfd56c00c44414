"""SQL: the values of an INSERT by its columns, and the statements that set a password."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..judge import Place
from ..spans import Span
from ..values import Looks, looks
from .pairs import Pair
from .prose import strong

# ruff: noqa: E501 - a pattern is easier to read in one piece

_INSERT = re.compile(
    r"\b(?:insert|replace)\s{1,8}(?:\w{1,16}\s{1,8}){0,2}into\s{1,8}[\w.\"`\[\]]{1,128}\s{0,8}"
    r"\(([^()]{1,2048})\)\s{0,8}(?:output\s[^()]{1,128})?values\s{0,8}(?=\()",
    re.IGNORECASE,
)
_ROW = re.compile(r"\s{0,16}(?:,\s{0,16})?\(")
_FIELD = re.compile(
    r"\s{0,16}(?:[NEB]?'((?:[^'\\]|''|\\.){0,8192}+)'|\"([^\"]{0,8192}+)\"|([^,()'\"]{0,256}+)"
    r"(?:\([^()]{0,256}\))?)\s{0,16}([,)])"
)
_SET = re.compile(
    r"\b(?:identified\s{1,4}(?:with\s{1,4}[\w\"']{1,32}\s{1,4})?(?:by|as)\s{1,4}(?:password\s{1,4}|values\s{1,4})?"
    r"|(?:(?-i:PASSWORD)|(?:encrypted|unencrypted|with|user|role|login)\s{1,4}password)(?:\s{1,4}|\s{0,4}=\s{0,4}|\()"
    r"|set\s{1,4}password\s{1,4}(?:for\s{1,4}[\w'\"@.%`-]{1,128}\s{0,4})?=\s{0,4}(?:password\()?)"
    r"(?:[NE]?'((?:[^'\\\r\n]|''|\\.){1,1024}+)'|(?<=by )\"([^\"\r\n]{1,1024})\"|(?<=by )([^\s;'\"(]{4,128}))",
    re.IGNORECASE,
)
_OPTIONS = re.compile(
    r"options\s{0,4}\([^()]{0,512}?\bpassword\s{1,4}'((?:[^'\\\r\n]|''|\\.){1,1024}+)'",
    re.IGNORECASE,
)
# A setting whose name is a value: `SET value = '…' WHERE name = 'smtp_password'`.
_SETTING = re.compile(
    r"set\s{1,4}\w{0,16}value\w{0,16}\s{0,4}=\s{0,4}'((?:[^'\\\r\n]|''|\\.){1,1024}+)'\s{1,8}where\s{1,4}[\w.]{1,64}\s{0,4}=\s{0,4}'([\w.-]{1,128})'",
    re.IGNORECASE,
)
_OPEN = {Looks.EMPTY, Looks.REFERENCE, Looks.PLACEHOLDER}
_ROWS = 10_000
_MARKS = ("PASSWORD", "DENTIFIED", "dentified", "password '", "password='", "password = '")


def sql(text: str) -> Iterator[Pair | Span]:
    """Values of secret columns, and passwords that statements set."""
    if "VALUES" in text or "values" in text:
        for insert in _INSERT.finditer(text):
            names = [name.strip(' \t\r\n"`[]') for name in insert[1].split(",")]
            yield from _rows(text, names, insert.end())
        yield from _unnamed(text)
    for found in _SET.finditer(text) if any(map(text.__contains__, _MARKS)) else ():
        if found[3] is None or not found[3].lower().startswith(("random", "password")):
            group = found.lastindex or 0
            if looks(found[group]) not in _OPEN:
                yield Span(*found.span(group), "sql")
    for found in _OPTIONS.finditer(text) if "OPTIONS" in text or "options" in text else ():
        if looks(found[1]) not in _OPEN:
            yield Span(*found.span(1), "sql")
    for found in _SETTING.finditer(text) if "WHERE" in text or "where" in text else ():
        yield Pair(*found.span(1), found[2], "", Place.QUOTED)

    if "COPY" in text or "sp_add" in text:
        yield from _other(text)


_COPY = re.compile(
    r"\bCOPY\s{1,4}[\w.\"]{1,128}\s{0,4}\(([^()]{1,1024})\)\s{1,4}FROM\s{1,4}stdin[^\n]{0,64}\n",
    re.IGNORECASE,
)
_LOGIN = re.compile(
    r"\bsp_add(?:login|user)\s{1,4}(?:@\w+\s?=\s?)?N?'[^']{1,64}'\s?,\s?(?:@\w+\s?=\s?)?N?'([^']{1,128})'"
)


def _other(text: str) -> Iterator[Pair]:
    """Rows behind COPY, and the procedures that make a login."""
    for copy in _COPY.finditer(text):
        names = [name.strip(' \t\r\n"') for name in copy[1].split(",")]
        at = copy.end()
        for _ in range(_ROWS):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            cells = text[at:end].split("\t")
            if len(cells) != len(names):
                break
            for name, cell in zip(names, cells, strict=True):
                yield Pair(at, at + len(cell), name, "", Place.CELL)
                at += len(cell) + 1
            at = end + 1
    for found in _LOGIN.finditer(text):
        yield Pair(*found.span(1), "password", "key", Place.QUOTED, "sql")


_UNNAMED = re.compile(
    r"\binsert\s{1,8}into\s{1,8}[\w.\"`]{0,64}(?:user|account|login|credential|member|secret|token)"
    r"[\w.\"`]{0,64}\s{1,8}values\s{0,8}\(([^()]{1,2048})\)",
    re.IGNORECASE,
)
_TEXT = re.compile(r"'((?:[^'\\]|''){4,256})'")


def _unnamed(text: str) -> Iterator[Pair]:
    """Values without the names of their columns, in a table of accounts, that look like secrets."""
    for insert in _UNNAMED.finditer(text):
        for found in _TEXT.finditer(text, *insert.span(1)):
            if strong(found[1]) and "@" not in found[1]:
                yield Pair(*found.span(1), "password", "key", Place.QUOTED, "sql")


def _rows(text: str, names: list[str], at: int) -> Iterator[Pair]:
    for _ in range(_ROWS):
        row = _ROW.match(text, at)
        if row is None:
            return
        at = row.end()
        for name in names:
            field = _FIELD.match(text, at)
            if field is None:
                return
            at = field.end()
            group = next((n for n in (1, 2) if field[n] is not None), 0)
            if group:
                yield Pair(*field.span(group), name, "", Place.QUOTED)
            if field[4] == ")":
                break
