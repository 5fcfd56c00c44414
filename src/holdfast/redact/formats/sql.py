"""Finds secrets in SQL: the values of INSERT and COPY in columns that are named like a secret, and
settings whose name is written as a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..spans import Span
from ..values import is_strong
from ..verdict import Syntax
from .keywords import Candidates, Pair

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
# A setting whose name is a value: `SET value = '…' WHERE name = 'smtp_password'`.
_SETTING = re.compile(
    r"set\s{1,4}\w{0,16}value\w{0,16}\s{0,4}=\s{0,4}'((?:[^'\\\r\n]|''|\\.){1,1024}+)'\s{1,8}where\s{1,4}[\w.]{1,64}\s{0,4}=\s{0,4}'([\w.-]{1,128})'",
    re.IGNORECASE,
)
_COPY = re.compile(
    r"\bCOPY\s{1,4}[\w.\"]{1,128}\s{0,4}\(([^()]{1,1024})\)\s{1,4}FROM\s{1,4}stdin[^\n]{0,64}\n",
    re.IGNORECASE,
)
# An INSERT without columns into a table of accounts.
_UNNAMED = re.compile(
    r"\binsert\s{1,8}into\s{1,8}[\w.\"`]{0,64}(?:user|account|login|credential|member|secret|token)"
    r"[\w.\"`]{0,64}\s{1,8}values\s{0,8}\(([^()]{1,2048})\)",
    re.IGNORECASE,
)
_TEXT = re.compile(r"'((?:[^'\\]|''){4,256})'")
_ROWS = 10_000


def sql(text: str) -> Candidates:
    """Yield the values in SQL statements, each with the name of its column or setting."""
    if "VALUES" in text or "values" in text:
        for insert in _INSERT.finditer(text):
            yield from _insert(text, _columns(insert[1]), insert.end())
        for insert in _UNNAMED.finditer(text):
            for found in _TEXT.finditer(text, *insert.span(1)):
                if is_strong(found[1]) and "@" not in found[1]:
                    yield Span(*found.span(1), "sql")
    for found in _SETTING.finditer(text) if "WHERE" in text or "where" in text else ():
        yield Pair(*found.span(1), found[2], "", Syntax.QUOTED)
    for copy in _COPY.finditer(text) if "COPY" in text else ():
        yield from _copy(text, _columns(copy[1]), copy.end())


def _columns(listed: str) -> list[str]:
    return [name.strip(' \t\r\n"`[]') for name in listed.split(",")]


def _copy(text: str, columns: list[str], at: int) -> Iterator[Pair]:
    """Yield the cells in the rows after COPY, each with the name of its column."""
    while at < len(text):
        end = text.find("\n", at)
        cells = text[at : end if end >= 0 else len(text)].split("\t")
        if len(cells) != len(columns):
            return
        for name, cell in zip(columns, cells, strict=True):
            yield Pair(at, at + len(cell), name, "", Syntax.CELL)
            at += len(cell) + 1


def _insert(text: str, columns: list[str], at: int) -> Iterator[Pair]:
    """Yield the values in the rows after VALUES, each with the name of its column."""
    for _ in range(_ROWS):
        row = _ROW.match(text, at)
        if row is None:
            return
        at = row.end()
        for name in columns:
            field = _FIELD.match(text, at)
            if field is None:
                return
            at = field.end()
            for group in (1, 2):
                if field[group] is not None:
                    yield Pair(*field.span(group), name, "", Syntax.QUOTED)
            if field[4] == ")":
                break
