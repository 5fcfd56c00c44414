"""The route for full-text search over the sessions of the caller."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from litestar import get
from litestar.params import FromQuery, QueryParameter

from ...log.catalog import Page, Phase, SearchQuery
from ...log.events import Key
from ...stores.port import Store
from ...values.search import Found
from ...wire import FoundPage
from ..engines import TenantStore
from ..http.context import Context
from ..placement import pagination
from ..placement.locator import SessionLocator
from .parameters import LAST, READ, Limit, Text

Words = Annotated[
    str,
    QueryParameter(
        name="q",
        min_length=1,
        max_length=1_000,
        description='The search query: words, "a phrase", prefix*, -without, from:user, tool:name.',
    ),
]
Time = Annotated[int | None, QueryParameter(ge=0, le=LAST)]
Cursor = Annotated[str | None, QueryParameter(min_length=1, max_length=4_000)]


@get("/search", opt=READ, operation_id="search")
async def search(
    ctx: Context,
    q: Words,
    session: Text = None,
    user: Text = None,
    agent: Text = None,
    phase: FromQuery[Phase | None] = None,
    kind: Text = None,
    label: Text = None,
    since: Time = None,
    until: Time = None,
    store: Text = None,
    cursor: Cursor = None,
    limit: Limit = 20,
) -> FoundPage:
    """Return the events of the caller's sessions whose text matches, newest first; with the scope
    `sessions:all`, of all sessions, or those of `user`. They are listed store by store, the default
    store first, or from `store` only. Unavailable stores are listed in `missing`."""
    caller = ctx.caller
    if user is not None or not caller.may("sessions:all"):
        user = ctx.acting_for(user)
    query = SearchQuery(
        text=q,
        tenant=caller.tenant,
        session=session,
        user=user,
        agent=agent,
        phases=() if phase is None else (phase,),
        kind=kind,
        since=since,
        until=until,
        labels=() if label is None else (label,),
    )
    return await _found(ctx, query, store=store, cursor=cursor, limit=limit)


async def _found(
    ctx: Context, query: SearchQuery, *, store: str | None, cursor: str | None, limit: int
) -> FoundPage:
    """Search one store or all stores of the caller, and return a page of hits."""
    behind = scanned = False

    async def fetch(one: Store, after: str | None, most: int) -> Page[Found]:
        nonlocal behind, scanned
        found = await one.search(query, cursor=after, limit=most)
        behind, scanned = behind or found.behind, scanned or found.scanned
        return Page(items=found.hits, cursor=found.cursor)

    if query.session is not None:
        place, _ = await ctx.find(query.session)
        only = await fetch(place.store, cursor, limit)
        return FoundPage(hits=only.items, cursor=only.cursor, behind=behind, scanned=scanned)
    page = await pagination.page(
        ctx.service.places,
        query,
        fetch,
        store=store,
        cursor=cursor,
        limit=limit,
        sift=partial(_here, ctx.service.places),
    )
    return FoundPage(
        hits=page.items, cursor=page.cursor, behind=behind, scanned=scanned, missing=page.missing
    )


async def _here(places: SessionLocator, place: TenantStore, hits: list[Found]) -> list[Found]:
    """Return the hits of a store, without those in sessions that were moved to another store."""
    keys = [Key(place.tenant, name, "main") for name in dict.fromkeys(hit.session for hit in hits)]
    rows = [row for row in await place.store.rows(keys) if row is not None]
    left = {row.session for row in await pagination.here(places, place, rows)}
    return [hit for hit in hits if hit.session in left]


HANDLERS: list[Any] = [search]
