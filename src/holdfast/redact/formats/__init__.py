"""Reads the formats in which text contains secrets.

A format yields pairs of names and values, which `verdict` judges, and spans that are secrets
regardless of any name.
"""

from __future__ import annotations

from ..names import Names
from ..vendors import vendors
from .blocks import blocks
from .code import code
from .http import http
from .keywords import Candidates, Pair, keywords
from .named_values import named_values
from .pairs import pairs
from .patterns import CLASSES, patterns
from .prose import prose
from .shell import shell
from .sql import sql
from .tables import tables
from .urls import urls

__all__ = ["CLASSES", "Pair", "read"]


def read(text: str, names: Names) -> Candidates:
    """Yield everything in a string that may be a secret."""
    found = keywords(text, names)
    yield from urls(text)
    yield from blocks(text, found.runs)
    yield from vendors(text, found.runs)
    yield from patterns(text)
    yield from http(text, found.names)
    yield from shell(text, found)
    yield from sql(text)
    yield from code(text, found)
    yield from prose(text, found)
    if found.names:
        yield from pairs(text, found.names)
        yield from named_values(text, found.names)
        yield from tables(text, found.names)
