"""Pagination over all stores of a server, one store after the other. If one store cannot fill a
page, the page continues with the next store. A cursor names the store in which the next page
starts. An unavailable store is skipped, and reported on that page and on all later pages."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from ...errors import HoldfastError, InvalidValue
from ...log.catalog import Page, PendingQuery, Query, Row, SearchQuery
from ...stores.port import Store
from ..engines import TenantStore
from .locator import SessionLocator, rank, same

T = TypeVar("T")
AnyQuery: TypeAlias = Query | PendingQuery | SearchQuery
Fetch: TypeAlias = Callable[[Store, "str | None", int], Awaitable[Page[T]]]
Sift: TypeAlias = Callable[[TenantStore, list[T]], Awaitable[list[T]]]
LONGEST = 1_000  # characters of a cursor
MARK = "."  # follows the name of the store; never occurs in the cursor of a store
PASSED = "-"  # precedes the name of each store that was skipped
ROUNDS = 10  # queries of one store for one page, at most, if results are filtered out


class StoresPage(NamedTuple, Generic[T]):
    """A page of results, and the stores that were skipped for this page or an earlier one."""

    items: list[T]
    cursor: str | None
    total: int | None
    missing: list[str]


async def page(
    places: SessionLocator,
    query: AnyQuery,
    fetch: Fetch[T],
    *,
    store: str | None = None,
    cursor: str | None = None,
    limit: int,
    sift: Sift[T] | None = None,
) -> StoresPage[T]:
    """Return a page of the results of a query in all stores, or in `store` only. `fetch` queries
    one store; it is called for the stores that the page needs, or if a total is requested, for all
    stores. `sift` filters the results of a store; more results are then fetched in place of the
    removed ones. If no store responds, the error of the first store is raised; the cursor stays
    valid."""
    kinds = places.order if store is None else [store]
    start, inner, passed = _read(query, kinds, cursor, one=store is not None)
    counted = isinstance(query, Query) and query.total
    walk = _Walk(places, query, fetch, kinds, limit, None if store is not None else sift, passed)
    more: str | None = None
    for n, kind in enumerate(kinds):
        if n < start or more is not None:
            if counted:
                await walk.ask(kind, None, 1, first=True)
            continue
        more = await walk.fill(n, inner if n == start else None)
    if walk.failed is not None and not walk.answered:
        raise walk.failed
    missing = [kind for kind in kinds if kind in walk.missing]
    return StoresPage(walk.items, more, walk.total if counted else None, missing)


async def here(places: SessionLocator, place: TenantStore, rows: list[Row]) -> list[Row]:
    """Return the rows of a store, without sessions that were moved to another store of the
    server."""
    gone = [row for row in rows if row.sealed is not None]
    moved = await asyncio.gather(*(_moved(places, place, row) for row in gone))
    left = {row.session for row, elsewhere in zip(gone, moved, strict=True) if elsewhere}
    return [row for row in rows if row.session not in left]


async def _moved(places: SessionLocator, place: TenantStore, row: Row) -> bool:
    kinds = [kind for kind in places.order if kind != place.kind]
    found, _ = await places.others(row.scope, kinds, places.lists)
    return any(rank(other) > rank(row) for one, other in found if not same(one, place))


class _Walk(Generic[T]):
    """Fills one page with results of one store after the other."""

    def __init__(
        self,
        places: SessionLocator,
        query: AnyQuery,
        fetch: Fetch[T],
        kinds: Sequence[str],
        limit: int,
        sift: Sift[T] | None,
        passed: set[str],
    ) -> None:
        self._places, self._query, self._fetch = places, query, fetch
        self._kinds, self._limit, self._sift = kinds, limit, sift
        self.items: list[T] = []
        self.total, self.missing = 0, passed
        self.answered = False  # whether a store of this page has answered
        self.failed: HoldfastError | None = None

    async def ask(self, kind: str, after: str | None, most: int, *, first: bool) -> Page[T] | None:
        """Query one store. Returns None if it is unavailable and the page has other stores."""
        places, tenant = self._places, self._query.tenant
        if len(self._kinds) == 1:
            found = await self._fetch((await places.place(tenant, kind)).store, after, most)
        else:
            told = await places.ask(
                places.lists, tenant, kind, lambda store: self._fetch(store, after, most)
            )
            if isinstance(told, HoldfastError):
                self.missing.add(kind)
                self.failed = self.failed or told
                return None
            _, found = told
        self.total += (found.total or 0) if first else 0
        return found

    async def fill(self, n: int, after: str | None) -> str | None:
        """Add results of the n-th store after a cursor, until the page is full. Returns the cursor
        of the next page. Returns None if the page continues with the next store, or if there are no
        more results."""
        for turn in range(ROUNDS):
            room = self._limit - len(self.items)
            found = await self.ask(self._kinds[n], after, room, first=turn == 0)
            if found is None:
                return None
            self.answered, after = True, found.cursor
            self.items += await self._sifted(n, found.items)
            if after is None or len(self.items) >= self._limit:
                break
        if after is not None:
            return after if len(self._kinds) == 1 else self._mark(n) + after
        full = len(self.items) >= self._limit
        return self._mark(n + 1) if full and n + 1 < len(self._kinds) else None

    async def _sifted(self, n: int, items: list[T]) -> list[T]:
        if self._sift is None or len(self._kinds) == 1:
            return items
        return await self._sift(await self._places.place(self._query.tenant, self._kinds[n]), items)

    def _mark(self, n: int) -> str:
        passed = (kind for kind in self._kinds if kind in self.missing)
        return PASSED.join(_name(self._query, kind) for kind in (self._kinds[n], *passed)) + MARK


def _read(
    query: AnyQuery, kinds: Sequence[str], cursor: str | None, *, one: bool
) -> tuple[int, str | None, set[str]]:
    """Parse a cursor. Returns the store that the cursor points to, the store's own cursor, and the
    stores that were skipped. A cursor without a store points to the first store."""
    if cursor is None or MARK not in cursor:
        return 0, cursor, set()
    mark, _, inner = cursor.partition(MARK)
    first, *rest = mark.split(PASSED)
    names = {_name(query, kind): n for n, kind in enumerate(kinds)}
    if one or first not in names:
        raise InvalidValue(
            field="cursor",
            problem="is a cursor of another query, or of a store that no longer exists",
            remedy="start from the first page",
        )
    return names[first], inner or None, {kinds[names[name]] for name in rest if name in names}


def _name(query: AnyQuery, kind: str) -> str:
    """Return the name that stands for a store in the cursors of a query."""
    about = (query.named, query, kind)
    text = msgspec.json.encode(about, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]
