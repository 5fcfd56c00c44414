"""Finds secrets in text by its format: source code, shell commands, HTTP, SQL, tables and others.

Each module reads one format. It yields pairs of a name and a value, for which `verdict` decides
whether the value is secret, and spans that are secrets regardless of any name.
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
    """Yield all pairs and spans of a string that may be secrets."""
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
