"""The pure functions of full-text search: words, the searched texts of events, and the query
language."""

from .query import Condition, TextQuery, conditions, excerpt, match, parse_query
from .texts import MOST, ROLES, SEARCHED, EventText, declare_text, event_text, named_calls
from .words import index_terms, words

__all__ = [
    "MOST",
    "ROLES",
    "SEARCHED",
    "Condition",
    "EventText",
    "TextQuery",
    "conditions",
    "declare_text",
    "event_text",
    "excerpt",
    "index_terms",
    "match",
    "named_calls",
    "parse_query",
    "words",
]
