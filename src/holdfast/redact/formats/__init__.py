"""How each format of text writes names and values down. A format reads pairs; `judge` decides about them.
What has the form of a secret by itself, a format yields as a span."""

from __future__ import annotations

from collections.abc import Iterator

from ..names import Names
from ..spans import Span
from ..vendors import vendors
from .blocks import blocks
from .code import code
from .http import http
from .landmarks import landmarks
from .named_values import named_values
from .pairs import Pair, pairs
from .prose import prose, telling
from .shell import shell
from .sql import sql
from .tables import tables
from .urls import urls

# ruff: noqa: E501 - a pattern is easier to read in one piece

__all__ = ["Pair", "read", "telling"]


def read(text: str, names: Names) -> Iterator[Pair | Span]:
    """All that may be a secret in a text, as each format reads it."""
    marks = landmarks(text, names)
    found = marks.names
    yield from urls(text)
    yield from blocks(text, marks.runs)
    yield from vendors(text, marks.runs)
    yield from http(text, found)
    yield from shell(text, marks)
    yield from sql(text)
    yield from code(text, marks)
    yield from prose(text, marks)
    if not found:
        return
    yield from pairs(text, found)
    yield from named_values(text, found)
    yield from tables(text, found)
