"""Masks secrets in values and strings, for example before they are logged or exported.

Secrets are the values of names such as `api_key` and `Authorization`, values that the program has
registered (`learn`), and text in the format of a secret. No I/O; the time is linear in the length
of the text.
"""

from . import encodings
from .formats import CLASSES
from .names import DEFAULT_KEYS, words
from .redactor import SHORTEST, Mask, OnHit, OnSeen, Redactor, Seen, forms
from .spans import PLACEHOLDER, Finder, Span, only_placeholders
from .stream import StreamRedactor, values_only
from .traversal import DEPTH, VALUES, describe
from .values import is_distinct

__all__ = [
    "CLASSES",
    "DEFAULT_KEYS",
    "DEPTH",
    "PLACEHOLDER",
    "SHORTEST",
    "VALUES",
    "Finder",
    "Mask",
    "OnHit",
    "OnSeen",
    "Redactor",
    "Seen",
    "Span",
    "StreamRedactor",
    "describe",
    "encodings",
    "forms",
    "is_distinct",
    "only_placeholders",
    "values_only",
    "words",
]


def __dir__() -> list[str]:
    return sorted(__all__)
