"""Lists that go over every store of a server, one store after the other. A page is filled from the
next store where one is at its end, and its cursor says in which store it stands. A store that
cannot be asked is passed over, and named on that page and on all that follow it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from ...errors import HoldfastError, InvalidValue, LogDamaged, MissingExtra, StoreError
from ...log.catalog import Page, PendingQuery, Query, Row
from ...stores.port import Store
from ..engines import Place
from .locator import Places, rank, same

T = TypeVar("T")
Fetch: TypeAlias = Callable[[Store, "str | None", int], Awaitable[Page[T]]]
Sift: TypeAlias = Callable[[Place, list[T]], Awaitable[list[T]]]
LONGEST = 1_000  # characters of a cursor
MARK = "."  # behind the name of the store; no cursor of a store has one
PASSED = "-"  # before the name of each store that was passed over
ROUNDS = 10  # queries of one store for one page, where not all that it has is shown


class Listed(NamedTuple, Generic[T]):
    """A page, and the stores that it and those before it lack."""

    items: list[T]
    cursor: str | None
    total: int | None
    missing: list[str]


async def page(
    places: Places,
    query: Query | PendingQuery,
    fetch: Fetch[T],
    *,
    store: str | None = None,
    cursor: str | None = None,
    limit: int,
    sift: Sift[T] | None = None,
) -> Listed[T]:
    """A page of what answers a query in all stores, or in one: one call of `fetch` for each, and
    none for those that the page does not come to, unless a total is asked for. `sift` leaves out
    what is not to be listed where it was found; then more is fetched.

    A page for which no store has answered raises what the first of them failed with; the cursor
    that asked for it stays good."""
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
    return Listed(walk.items, more, walk.total if counted else None, missing)


async def here(places: Places, place: Place, rows: list[Row]) -> list[Row]:
    """Those of a store's rows that are of sessions which are there, and were not moved to another
    store of the server."""
    gone = [row for row in rows if row.sealed is not None]
    moved = await asyncio.gather(*(_moved(places, place, row) for row in gone))
    left = {row.session for row, elsewhere in zip(gone, moved, strict=True) if elsewhere}
    return [row for row in rows if row.session not in left]


async def _moved(places: Places, place: Place, row: Row) -> bool:
    kinds = [kind for kind in places.order if kind != place.kind]
    found, _ = await places.others(row.scope, kinds, places.lists)
    return any(rank(other) > rank(row) for one, other in found if not same(one, place))


class _Walk(Generic[T]):
    """One page on its way over the stores."""

    def __init__(
        self,
        places: Places,
        query: Query | PendingQuery,
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
        self.answered = False  # one that the page is to be filled from
        self.failed: HoldfastError | None = None

    async def ask(self, kind: str, after: str | None, most: int, *, first: bool) -> Page[T] | None:
        """What one store has, or None if it cannot be asked and there are others."""

        async def work() -> Page[T]:
            place = await self._places.place(self._query.tenant, kind)  # which may open it
            return await self._fetch(place.store, after, most)

        if len(self._kinds) == 1:
            found = await work()
        else:
            try:
                found = await self._places.lists.ask(kind, work)
            except LogDamaged:
                raise
            except (StoreError, MissingExtra) as error:
                self.missing.add(kind)
                self.failed = self.failed or error
                return None
        self.total += (found.total or 0) if first else 0
        return found

    async def fill(self, n: int, after: str | None) -> str | None:
        """Take from the n-th store what it has behind a cursor, as far as there is room. Where the
        list goes on behind the page; None if at the next store, in the same page, or nowhere."""
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
    query: Query | PendingQuery, kinds: Sequence[str], cursor: str | None, *, one: bool
) -> tuple[int, str | None, set[str]]:
    """The store that a cursor stands in, the place in it, and the stores that were passed over on
    the way; one that names no store stands in the first."""
    if cursor is None or MARK not in cursor:
        return 0, cursor, set()
    mark, _, inner = cursor.partition(MARK)
    first, *rest = mark.split(PASSED)
    names = {_name(query, kind): n for n, kind in enumerate(kinds)}
    if one or first not in names:
        raise InvalidValue(
            field="cursor",
            problem="belongs to another query, or to a store that is no more",
            remedy="start from the first page",
        )
    return names[first], inner or None, {kinds[names[name]] for name in rest if name in names}


def _name(query: Query | PendingQuery, kind: str) -> str:
    """What names a store in the cursors of one query."""
    about = (query.named, query, kind)
    text = msgspec.json.encode(about, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]
