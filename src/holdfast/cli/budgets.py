"""`holdfast budgets`: list what sessions, users and tenants have used, or count it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from cyclopts import Parameter
from rich.text import Text

from ..environment import wall_clock
from ..sessions.budgets import Rebuilt, rebuild, usage_page
from ..stores.port import Store
from ..values.budgets import PERIODS, SCOPES, BudgetUsage
from .error_report import UsageError
from .options import DEFAULTS, Common, Cursor, Limit
from .output import Output, plain
from .render import number, table_text

Action: TypeAlias = Annotated[Literal["list", "rebuild"], Parameter(help="What to do.")]


async def budgets(
    action: Action = "list",
    /,
    *,
    user: str | None = None,
    current: bool = False,
    count: Sequence[str] = (),
    limit: Limit = 50,
    cursor: Cursor = None,
    common: Common = DEFAULTS,
) -> None:
    """List what was used of budgets, or count it again.

    ```
    holdfast budgets --current
    holdfast budgets rebuild --count user/day
    ```

    Lists tokens, cost in dollars and runs of each session, user and tenant for which usage is
    counted, most recently used first. `rebuild` reads all logs of the tenant, and adds what is
    missing, for example after a crash, or from before a budget was set. It removes nothing: what
    deleted sessions have used stays used. To extend a budget, answer its pending item with
    `holdfast answer`. With `--json`, prints one object: `{"items": […], "cursor": …}`; for
    `rebuild`, `{"counted": …, "added": …}`.

    :param user: Only the usage of this user and of the user's sessions.
    :param current: Only the current day and month, and totals.
    :param count: With `rebuild`, also count this scope and period, such as user/day or
        tenant/total. Default: those that are counted already.
    """
    out = common.output()
    if action == "rebuild":
        wanted = [_scope(text) for text in count]
        async with common.open() as store:
            with out.working("counting"):
                done = await rebuild(store, common.tenant, wanted)
        return _rebuilt(out, done)
    async with common.open() as store:
        await _list(out, store, common, user, current, limit, cursor)


async def _list(
    out: Output,
    store: Store,
    common: Common,
    user: str | None,
    current: bool,
    limit: int,
    cursor: str | None,
) -> None:
    at = wall_clock() if current else None
    page = await usage_page(store, common.tenant, user=user, at=at, cursor=cursor, limit=limit)
    items = [*map(msgspec.structs.asdict, page.items)]
    lines = _table(page.items, out.console.width)
    out.show({"items": items, "cursor": page.cursor}, lines, "no usage is counted")
    if page.cursor is not None:
        out.note(f"for more, add: --cursor {page.cursor}")


def _table(items: Sequence[BudgetUsage], width: int) -> Iterator[Text]:
    rows = [
        {
            "SCOPE": item.scope,
            "NAME": plain(item.who),
            "PERIOD": item.period,
            "TOKENS": str(item.tokens),
            "COST": f"{item.cost:.4f}",
            "RUNS": str(item.runs),
            "EXTENDED": ", ".join(f"{name} {more}" for name, more in item.extended.items()),
        }
        for item in items
    ]
    return table_text(rows, width, optional=("EXTENDED", "RUNS"))


def _scope(text: str) -> tuple[str, str]:
    scope, _, per = text.partition("/")
    if scope not in SCOPES or per not in PERIODS:
        raise UsageError(f"--count must be SCOPE/PERIOD such as user/day, got {text!r}")
    return scope, per


def _rebuilt(out: Output, done: Rebuilt) -> None:
    events = number(done.counted, "event")
    out.show(done, f"{events} counted, {number(done.added, 'charge')} added")
