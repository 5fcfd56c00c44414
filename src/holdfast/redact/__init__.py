"""The one funnel that keeps secrets in: values and texts go in, and come out masked.

Three things are secret: what stands under a secret's name (`api_key`, `Authorization`), the
values that the program has told us (`learn`), and what has the shape of a secret wherever it
stands in a text. Pure, and linear in the length of a text whatever it holds.
"""

from . import decode
from .flow import Flow, values_only
from .funnel import SHORTEST, Mask, OnHit, OnSeen, Redactor, Seen, forms
from .names import DEFAULT_KEYS, words
from .spans import PLACEHOLDER, Finder, Span, only_placeholders
from .values import is_distinct
from .walk import DEPTH, VALUES, describe

__all__ = [
    "DEFAULT_KEYS",
    "DEPTH",
    "PLACEHOLDER",
    "SHORTEST",
    "VALUES",
    "Finder",
    "Flow",
    "Mask",
    "OnHit",
    "OnSeen",
    "Redactor",
    "Seen",
    "Span",
    "decode",
    "describe",
    "forms",
    "is_distinct",
    "only_placeholders",
    "values_only",
    "words",
]


def __dir__() -> list[str]:
    return sorted(__all__)
