"""Queries and pages: which rows and pending items match, and the cursors between pages. Pure.
`matches` defines the result that every store's index must return.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from ...errors import InvalidValue
from ..codec import LIMITS, check_choice, check_count, check_name
from ..events import to_json
from .rows import Pending, Row, surface_name

T = TypeVar("T")

LONGEST = 1 << 63  # numbers in a cursor are below this


class Query(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The filters of a list of sessions or, with `session`, of a list of the threads of that
    session. Times are as in `Row`; filters ending in `_from` are inclusive, those ending in
    `_until` exclusive.

    See [finding sessions](../sessions.md#finding).
    """

    named: ClassVar = "Query"  # its name in cursors, which stays even if the class is renamed

    tenant: str = "main"
    session: str | None = None
    user: str | None = None
    workspace: str | None = None
    agent: str | None = None
    phases: tuple[str, ...] = ()
    run: str | None = None
    label: str | None = None
    surface: tuple[str, str] | None = None
    metadata: dict[str, Any] = {}
    created_from: int | None = None
    created_until: int | None = None
    active_from: int | None = None
    active_until: int | None = None
    stale_until: int | None = None
    order: Literal["active", "created"] = "active"
    newest_first: bool = True
    total: bool = False


class PendingQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The filters of a list of pending items, which is sorted oldest first. `user` is the user of
    the item's session.

    See [finding sessions](../sessions.md#finding).
    """

    named: ClassVar = "PendingQuery"

    tenant: str = "main"
    session: str | None = None
    what: str | None = None
    assignee: str | None = None
    user: str | None = None


class SearchQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A full-text search: the `text` in the query language, and filters. `user`, `phases` and
    `labels` filter by session, `agent` filters by the agent of the thread, or of the session if the
    thread has none; `since` (inclusive) and `until` (exclusive) filter by the time of events, UTC
    in ms."""

    named: ClassVar = "SearchQuery"

    text: str
    tenant: str = "main"
    session: str | None = None
    user: str | None = None
    agent: str | None = None
    phases: tuple[str, ...] = ()
    kind: str | None = None
    since: int | None = None
    until: int | None = None
    labels: tuple[str, ...] = ()


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """One page of results. `cursor` is passed to get the next page; it is None on the last page.

    See [finding sessions](../sessions.md#finding).
    """

    items: list[T]
    cursor: str | None = None
    total: int | None = None


def terms(query: Query) -> list[tuple[str, str, str]]:
    """Return the query's conditions on metadata, labels and surfaces, as (map, key, term)."""
    found = [("metadata", name, term(value)) for name, value in query.metadata.items()]
    if query.label is not None:
        found.append(("labels", query.label, term(True)))
    if query.surface is not None:
        found.append(("surfaces", surface_name(*query.surface), term(None)))
    return found


def row_terms(row: Row) -> set[tuple[str, str, str]]:
    """Return the (map, key, term) of each map entry of a row, to compare with a query's conditions.
    A surface is compared by its name only."""
    found = {("metadata", name, term(value)) for name, value in row.metadata.items()}
    found.update(("labels", name, term(True)) for name in row.labels)
    found.update(("surfaces", name, term(None)) for name in row.surfaces)
    return found


def term(value: Any) -> str:
    """Return a JSON value as a short text. Two texts are equal if and only if the values are
    equal."""
    text = msgspec.json.encode(value, order="deterministic")
    return text.decode() if len(text) <= 128 else "sha256:" + hashlib.sha256(text).hexdigest()


def matches(query: Query, row: Row) -> bool:
    """Return whether a row matches a query. Every store's index must return the same result."""
    if row.tenant != query.tenant or (query.session is None and row.thread != "main"):
        return False
    for name in ("session", "user", "workspace", "agent", "run"):
        if (wanted := getattr(query, name)) is not None and getattr(row, name) != wanted:
            return False
    if query.phases and row.phase not in query.phases:
        return False
    return _in_range(query, row) and set(terms(query)) <= row_terms(row)


def _in_range(query: Query, row: Row) -> bool:
    ranges = (
        (row.created, query.created_from, query.created_until),
        (row.active, query.active_from, query.active_until),
        (row.stale_at, None, query.stale_until),
    )
    for value, start, end in ranges:
        if start is not None and (value is None or value < start):
            return False
        if end is not None and (value is None or value >= end):
            return False
    return True


def pending_matches(query: PendingQuery, item: Pending) -> bool:
    """Return whether a pending item matches a query. The filter `user` is not checked, because it
    needs the row of the session."""
    return item.tenant == query.tenant and all(
        (wanted := getattr(query, name)) is None or getattr(item, name) == wanted
        for name in ("session", "what", "assignee")
    )


# Cursors

AnyQuery: TypeAlias = Query | PendingQuery | SearchQuery


def make_cursor(query: AnyQuery, value: int, tie: int | str) -> str:
    """Return a cursor for the position after (value, tie) in the results of `query`."""
    text = msgspec.json.encode((_digest(query), value, tie))
    return base64.urlsafe_b64encode(text).decode()


def read_cursor(query: AnyQuery, cursor: str) -> tuple[int, int | str]:
    """Return the position that a cursor represents. Raises `InvalidValue` for a cursor of another
    query."""
    try:
        text = base64.urlsafe_b64decode(cursor.encode())
        digest, value, tie = msgspec.json.decode(text, type=tuple[str, int, int | str])
        if not all(isinstance(n, str) or -LONGEST <= n < LONGEST for n in (value, tie)):
            raise ValueError("the number is too large for a cursor")
    except (AttributeError, ValueError) as error:  # msgspec's errors are ValueErrors
        raise InvalidValue(
            field="cursor", problem="is not a valid cursor", remedy="pass a page's cursor unchanged"
        ) from error
    if digest != _digest(query):
        raise InvalidValue(
            field="cursor", problem="belongs to another query", remedy="start from the first page"
        )
    return value, tie


def _digest(query: AnyQuery) -> str:
    text = query.named.encode() + msgspec.json.encode(query, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]


def check_query(query: AnyQuery, limit: int) -> None:
    """Reject empty strings, unknown orders and invalid limits, instead of treating them as
    "all"."""
    check_count("limit", limit, least=1, most=LIMITS.page)
    for name in (
        "tenant",
        "session",
        "user",
        "workspace",
        "agent",
        "run",
        "label",
        "what",
        "assignee",
        "kind",
    ):
        value = getattr(query, name, None)
        if value == "":
            raise InvalidValue(field=name, problem="is empty", remedy="omit it, or pass a value")
        if value is not None:
            check_name(name, value)
    if isinstance(query, Query):
        _check_find(query)
    elif isinstance(query, SearchQuery):
        _check_search(query)


def _check_search(query: SearchQuery) -> None:
    for name in ("since", "until"):
        if getattr(query, name) is not None:
            check_count(name, getattr(query, name), least=0)
    for phase in query.phases:
        check_name("phase", phase)
    for label in query.labels:
        check_name("labels", label)


def _check_find(query: Query) -> None:
    check_choice("order", query.order, ("active", "created"))
    for name in query.__struct_fields__:
        if name.endswith(("_from", "_until")) and getattr(query, name) is not None:
            check_count(name, getattr(query, name), least=0)
    for phase in query.phases:
        check_name("phases", phase)
    if query.surface is not None:
        for part in query.surface:
            check_name("surface", part)
    for name in query.metadata:
        check_name("metadata", name)
    to_json(query.metadata)
