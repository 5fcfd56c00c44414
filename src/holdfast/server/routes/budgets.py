"""The route that lists what the users of a tenant have used of their budgets."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from litestar import get
from litestar.params import QueryParameter

from ...environment import wall_clock
from ...log.catalog import Page, Query
from ...sessions.budgets import usage_page
from ...stores.port import Store
from ...values.budgets import BudgetUsage
from ...wire import BudgetPage
from ..http.context import Context
from ..placement import pagination
from .parameters import READ, Cursor, Limit, Text

Current = Annotated[bool, QueryParameter(description="Only the current day and month, and totals.")]


@get("/budgets", opt=READ, operation_id="list_budgets")
async def budgets(
    ctx: Context,
    user: Text = None,
    current: Current = False,
    store: Text = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> BudgetPage:
    """Return what the caller and the caller's sessions have used of their budgets, most recently
    used first; with the scope `sessions:all`, also what the tenant and all users have used, or
    only `user`. Stores are listed one after the other, since each counts for itself."""
    caller = ctx.caller
    if user is not None or not caller.may("sessions:all"):
        user = ctx.acting_for(user)
    limits = ctx.service.settings.harness.get("budgets", ())
    at = wall_clock() if current else None

    async def fetch(one: Store, after: str | None, most: int) -> Page[BudgetUsage]:
        read = partial(usage_page, one, caller.tenant, user=user, at=at, budgets=limits)
        return await read(cursor=after, limit=most)

    page = await pagination.page(
        ctx.service.places,
        Query(tenant=caller.tenant, user=user),
        fetch,
        store=store,
        cursor=cursor,
        limit=limit,
    )
    return BudgetPage(items=page.items, cursor=page.cursor, missing=page.missing)


HANDLERS: list[Any] = [budgets]
