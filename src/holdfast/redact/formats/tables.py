"""Finds secrets in tables with a header: CSV and its variants, Markdown, and the output of psql and
similar programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..spans import Bounds
from ..values import Looks, looks
from ..verdict import Syntax
from .keywords import Pair, SecretName
from .literals import line_start

_LONGEST = 4096  # characters of a line that may be a row
_ROWS = 100_000
_SEPARATORS = ("|", "│", "┃", "║", "\t", ",", ";")
_RULE = re.compile(r"[\s|+:=\u2500-\u257f-]*")
_QUOTED = re.compile(r"[ ]*+(?:\"((?:[^\"]|\"\")*+)\"|'((?:[^']|'')*+)')")
_SPACED = re.compile(r"[ ]{2,}|\t")
_HEADER = re.compile(r"[\w \t\r.:/()#|│┃║,;\"'`*-]*+")
_COLUMN = re.compile(r"[\w .-]{1,40}")
_NAME = re.compile(r"[^\W\d][\w .:/()#-]{0,40}")
# The columns of a table of names and values.
_NAMES = ("name", "key", "variable", "parameter", "setting", "option", "property", "field", "env")
_VALUES = ("value", "wert", "valeur", "valor")


def tables(text: str, names: list[SecretName]) -> Iterator[Pair]:
    """Find the cells in columns that are named like a secret."""
    done = 0
    for name in names:
        if name.start < done:
            continue
        start = max(line_start(text, name.start, _LONGEST), name.start - _LONGEST)
        end = text.find("\n", name.start)
        done = end = len(text) if end < 0 else end
        line = text[start:end]
        if len(line) > _LONGEST or not ("|" in line or "│" in line or _HEADER.fullmatch(line)):
            continue
        marks = [mark for mark in _SEPARATORS if mark in line]
        for mark in marks or (["  "] if "  " in line.strip() else ()):
            table = _Table(text, start, end, mark)
            if mark in "|│" and (record := table.record()):
                yield record
                break
            if table.is_header(name):
                yield from table.pairs()
                done = table.last
                break


class _Table:
    """A table whose header is the line from `start` to `end`."""

    def __init__(self, text: str, start: int, end: int, mark: str) -> None:
        self._text, self._mark = text, mark
        self._header = self._cells(start, end)
        self._names = [text[slice(*cell)] for cell in self._header]
        self.last = end

    def is_header(self, name: SecretName) -> bool:
        """Return whether the line is a header with `name` in one of its cells."""
        names = self._names
        if sum(map(bool, names)) < 2 or not all(map(_is_name, names)):
            return False
        if self._mark in ",;" and not (names[0] and names[-1]):
            return False  # items of a list in code
        return any(start <= name.start and name.end <= end for start, end in self._header)

    def pairs(self) -> Iterator[Pair]:
        """Yield each cell with the name of its column. In a table of names and values, also yield
        it with the name in its row.
        """
        at, text = self.last + 1, self._text
        small = [name.lower() for name in self._names]
        key = next((n for n, name in enumerate(small) if name in _NAMES), None)
        value = next((n for n, name in enumerate(small) if name in _VALUES), None)
        for _ in range(_ROWS):
            if at >= len(text):
                return
            end = text.find("\n", at, at + _LONGEST)
            end = min(len(text), at + _LONGEST) if end < 0 else end
            if not _RULE.fullmatch(text, at, end):
                cells = self._cells(at, end)
                if len(cells) != len(self._header):
                    return
                for name, cell in zip(self._names, cells, strict=True):
                    if name:
                        yield Pair(*cell, name, "", Syntax.CELL)
                if key is not None and value is not None:
                    yield Pair(*cells[value], text[slice(*cells[key])], "", Syntax.CELL)
            elif not text[at:end].strip():
                return
            self.last, at = end, end + 1

    def record(self) -> Pair | None:
        """Find the value in a row `name | value`, as psql prints a record."""
        cells = [cell for cell in self._header if cell[0] < cell[1]]
        if len(cells) != 2 or not _COLUMN.fullmatch(self._text, *cells[0]):
            return None
        name, value = (self._text[slice(*cell)] for cell in cells)
        if looks(value) not in (Looks.RANDOM, Looks.MIXED, Looks.ID):
            return None
        return Pair(*cells[1], name, "", Syntax.CELL)

    def _cells(self, start: int, end: int) -> list[Bounds]:
        cells, at = [], start
        if self._mark == "  ":
            gaps = [gap.span() for gap in _SPACED.finditer(self._text, start, end)]
            for stop, after in [*gaps, (end, end)]:
                if stop > at:
                    cells.append(self._stripped(at, stop))
                at = after
            return cells
        while at <= end:
            literal = _QUOTED.match(self._text, at, end)
            stop = self._text.find(self._mark, literal.end() if literal else at, end)
            stop = end if stop < 0 else stop
            if literal:
                cells.append(literal.span(literal.lastindex or 0))
            else:
                cells.append(self._stripped(at, stop))
            at = stop + 1
        return cells

    def _stripped(self, start: int, end: int) -> Bounds:
        while start < end and self._text[start] in " \t\r`*":
            start += 1
        while end > start and self._text[end - 1] in " \t\r`*":
            end -= 1
        return start, end


def _is_name(cell: str) -> bool:
    return not cell or (
        _NAME.fullmatch(cell) is not None
        and cell[-1] != ":"
        and len(cell.split()) <= 3
        and looks(cell) not in (Looks.RANDOM, Looks.NUMBER)
    )
