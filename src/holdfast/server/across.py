"""Lists that go over every store of a server, one store after the other. A page is filled from the
next store where one is at its end, and its cursor says in which store it stands."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from ..catalog import Page, PendingQuery, Query
from ..errors import InvalidValue
from ..store import Store
from .places import Places

T = TypeVar("T")
Fetch: TypeAlias = Callable[[Store, "str | None", int], Awaitable[Page[T]]]
LONGEST = 1_000  # characters of a cursor
MARK = "."  # behind the name of the store; no cursor of a store has one


async def page(
    places: Places,
    query: Query | PendingQuery,
    fetch: Fetch[T],
    *,
    store: str | None = None,
    cursor: str | None = None,
    limit: int,
) -> Page[T]:
    """A page of what answers a query in all stores, or in one: at most one call of `fetch` for
    each, and none for those that the page does not come to, unless a total is asked for. A store
    that fails fails the page, since a list that leaves some out looks whole."""
    kinds = places.order if store is None else [store]
    start, inner = _read(query, kinds, cursor, one=store is not None)
    counted = isinstance(query, Query) and query.total
    items: list[T] = []
    more, total = None, 0
    for n, kind in enumerate(kinds):
        beside = n < start or more is not None
        if beside and not counted:
            continue
        place = await places.place(query.tenant, kind)
        if beside:
            found = await fetch(place.store, None, 1)
        else:
            behind = inner if n == start else None
            found = await fetch(place.store, behind, limit - len(items))
            items += found.items
            more = _next(query, kinds, n, found.cursor, full=len(items) >= limit)
        total += found.total or 0
    return Page(items=items, cursor=more, total=total if counted else None)


def _next(
    query: Query | PendingQuery, kinds: Sequence[str], n: int, cursor: str | None, *, full: bool
) -> str | None:
    """Where a list goes on behind what came from the n-th store; None if at the next store, in
    the same page, or nowhere."""
    if cursor is not None:
        return cursor if len(kinds) == 1 else _mark(query, kinds[n]) + cursor
    return _mark(query, kinds[n + 1]) if full and n + 1 < len(kinds) else None


def _read(
    query: Query | PendingQuery, kinds: Sequence[str], cursor: str | None, *, one: bool
) -> tuple[int, str | None]:
    """The store that a cursor stands in, and the place in it; one that names no store stands in
    the first."""
    if cursor is None or MARK not in cursor:
        return 0, cursor
    mark, _, inner = cursor.partition(MARK)
    for n, kind in enumerate(kinds):
        if not one and mark + MARK == _mark(query, kind):
            return n, inner or None
    raise InvalidValue(
        field="cursor",
        problem="belongs to another query, or to a store that is no more",
        remedy="start from the first page",
    )


def _mark(query: Query | PendingQuery, kind: str) -> str:
    """What names a store in the cursors of one query."""
    about = (type(query).__name__, query, kind)
    text = msgspec.json.encode(about, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16] + MARK
