"""Rows, queries and pages: what lists show, and how events become it. Pure.

`projection` turns one event into operations on its log's row, `rows` applies them, `queries`
says which rows answer. A store runs these inside its transactions and knows no event kind.
"""

from .phases import LIVE, MOVES, PHASES, Move, Phase
from .projection import project
from .queries import (
    Page,
    PendingQuery,
    Query,
    check_query,
    make_cursor,
    matches,
    pending_matches,
    read_cursor,
    row_terms,
    term,
    terms,
)
from .rows import (
    LIMITED,
    MAPS,
    SURFACE_CLAIM,
    Op,
    Parent,
    Pending,
    Project,
    Row,
    RowChange,
    agrees,
    apply,
    bound,
    pending_items,
    stale_at,
    surface_name,
    unseals,
    waiting,
    wake,
)

__all__ = [
    "LIMITED",
    "LIVE",
    "MAPS",
    "MOVES",
    "PHASES",
    "SURFACE_CLAIM",
    "Move",
    "Op",
    "Page",
    "Parent",
    "Pending",
    "PendingQuery",
    "Phase",
    "Project",
    "Query",
    "Row",
    "RowChange",
    "agrees",
    "apply",
    "bound",
    "check_query",
    "make_cursor",
    "matches",
    "pending_items",
    "pending_matches",
    "project",
    "read_cursor",
    "row_terms",
    "stale_at",
    "surface_name",
    "term",
    "terms",
    "unseals",
    "waiting",
    "wake",
]
