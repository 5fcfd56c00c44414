"""Tables with a header: CSV and its kin, Markdown, and what psql, mysql and others print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..judge import Place
from ..values import Looks, looks
from .landmarks import Anchor
from .pairs import Pair

_LONGEST = 4096  # characters of a line that may be a row
_ROWS = 100_000
_RULE = re.compile(r"[\s|+:=\u2500-\u257f-]*")
_QUOTED = re.compile(r"\"((?:[^\"]|\"\")*+)\"|'((?:[^']|'')*+)'")
_SPACED = re.compile(r"[ ]{2,}|\t")


# All that a line of names and marks between them may hold.
_HEADER = re.compile(r"[\w \t\r.:/()#|│┃║,;\"'`*-]*+")


class Cell(NamedTuple):
    start: int
    end: int


def tables(text: str, found: list[Anchor]) -> Iterator[Pair]:
    """The cells below the name of a secret."""
    done = 0
    for anchor in found:
        if anchor.start < done:
            continue
        start, end = _line(text, anchor.start)
        done = end
        if end - start > _LONGEST or not (
            "|" in text[start:end] or "│" in text[start:end] or _HEADER.fullmatch(text, start, end)
        ):
            continue
        for mark in _marks(text, start, end):
            read = _Table(text, start, end, mark)
            if mark in "|│" and (record := read.record()):
                yield record
                break
            columns = read.columns(anchor)
            if columns:
                done = read.last
                yield from read.pairs(columns)
                done = read.last
                break


def _line(text: str, at: int) -> tuple[int, int]:
    end = text.find("\n", at)
    start = text.rfind("\n", max(0, at - _LONGEST), at) + 1
    return max(start, at - _LONGEST), len(text) if end < 0 else end


def _marks(text: str, start: int, end: int) -> list[str]:
    line = text[start:end]
    found = [mark for mark in ("|", "│", "┃", "║", "\t", ",", ";") if mark in line]
    return found if found or "  " not in line.strip() else ["  "]


class _Table:
    """A table whose header is the line from `start` to `end`."""

    def __init__(self, text: str, start: int, end: int, mark: str) -> None:
        self._text, self._mark = text, mark
        self._header = self._cells(start, end)
        self._after = end
        self.last = end

    def columns(self, first: Anchor) -> list[tuple[int, str]]:
        """Which columns are called like a secret, if the line is a header."""
        names = [self._text[cell.start : cell.end] for cell in self._header]
        if len([name for name in names if name]) < 2 or not all(map(_is_name, names)):
            return []
        if self._mark in ",;" and not (names[0] and names[-1]):
            return []  # items of a list in code
        if not any(cell.start <= first.start and first.end <= cell.end for cell in self._header):
            return []
        return [(n, name) for n, name in enumerate(names) if name]

    def pairs(self, columns: list[tuple[int, str]]) -> Iterator[Pair]:
        at, text = self._after + 1, self._text
        listed = _listed([name.lower() for _, name in columns], [n for n, _ in columns])
        for _ in range(_ROWS):
            if at >= len(text):
                return
            end = text.find("\n", at, at + _LONGEST)
            end = min(len(text), at + _LONGEST) if end < 0 else end
            if not _RULE.fullmatch(text, at, end):
                cells = self._cells(at, end)
                if len(cells) != len(self._header):
                    return
                for n, name in columns:
                    yield Pair(cells[n].start, cells[n].end, name, "", Place.CELL)
                if listed is not None:  # the name of the value is in the row
                    name = text[cells[listed[0]].start : cells[listed[0]].end]
                    yield Pair(*cells[listed[1]], name, "", Place.CELL)
            elif not text[at:end].strip():
                return
            self.last, at = end, end + 1

    def record(self) -> Pair | None:
        """`name | value` on one line, as psql prints a record."""
        cells = [cell for cell in self._header if cell.start < cell.end]
        if len(cells) != 2 or not _COLUMN.fullmatch(self._text, *cells[0]):
            return None
        if looks(self._text[slice(*cells[1])]) not in (Looks.RANDOM, Looks.MIXED, Looks.ID):
            return None
        return Pair(*cells[1], self._text[slice(*cells[0])], "", Place.CELL)

    def _cells(self, start: int, end: int) -> list[Cell]:
        if self._mark == "  ":
            return list(self._columns(start, end))
        cells, at = [], start
        while at <= end:
            begun = at
            while begun < end and self._text[begun] in " \t" and self._text[begun] != self._mark:
                begun += 1
            literal = _QUOTED.match(self._text, begun, end)
            stop = self._text.find(self._mark, literal.end() if literal else at, end)
            stop = end if stop < 0 else stop
            if literal:
                group = 1 if literal[1] is not None else 2
                cells.append(Cell(*literal.span(group)))
            else:
                cells.append(self._stripped(at, stop))
            at = stop + 1
        return cells

    def _columns(self, start: int, end: int) -> Iterator[Cell]:
        at = start
        for gap in _SPACED.finditer(self._text, start, end):
            if gap.start() > at:
                yield self._stripped(at, gap.start())
            at = gap.end()
        if at < end:
            yield self._stripped(at, end)

    def _stripped(self, start: int, end: int) -> Cell:
        while start < end and self._text[start] in " \t\r`*":
            start += 1
        while end > start and self._text[end - 1] in " \t\r`*":
            end -= 1
        return Cell(start, end)


_NAMES = ("name", "key", "variable", "parameter", "setting", "option", "property", "field", "env")
_VALUES = ("value", "wert", "valeur", "valor")


def _listed(names: list[str], places: list[int]) -> tuple[int, int] | None:
    """The columns of a table of names and their values."""
    name = next((n for n, one in zip(places, names, strict=True) if one in _NAMES), None)
    value = next((n for n, one in zip(places, names, strict=True) if one in _VALUES), None)
    return None if name is None or value is None else (name, value)


_COLUMN = re.compile(r"[\w .-]{1,40}")
_NAME = re.compile(r"[^\W\d][\w .:/()#-]{0,40}")


def _is_name(cell: str) -> bool:
    return not cell or (
        _NAME.fullmatch(cell) is not None
        and cell[-1] != ":"
        and len(cell.split()) <= 3
        and looks(cell) not in (Looks.RANDOM, Looks.NUMBER)
    )
