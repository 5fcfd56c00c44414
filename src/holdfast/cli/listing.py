"""`holdfast sessions`: which sessions there are, or which threads one has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter, validators

from ..catalog import Page, Query, Row
from ..codec import LIMITS
from ..store import wall_clock
from .failure import UsageError
from .options import EVERYWHERE, Common
from .output import Output
from .render import rows_text

Phase = Literal["created", "active", "suspended", "expired"]
Run = Literal["running", "waiting", "done", "failed", "aborted", "interrupted"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which rows to list; all conditions must hold."""

    user: Annotated[str | None, Parameter(help="Only sessions of this user.")] = None
    workspace: Annotated[str | None, Parameter(help="Only sessions of this workspace.")] = None
    agent: Annotated[str | None, Parameter(help="Only sessions of this agent.")] = None
    phase: Annotated[
        list[Phase], Parameter(help="Only sessions in this phase; may be given again.")
    ] = field(default_factory=list)
    run: Annotated[Run | None, Parameter(help="Only sessions whose run is in this state.")] = None
    label: Annotated[str | None, Parameter(help="Only sessions with this label.")] = None
    metadata: Annotated[
        list[str],
        Parameter(
            help="Only sessions with this metadata, KEY=VALUE; may be given again. "
            "A VALUE that reads as JSON is taken as that: 3 is a number, '\"3\"' a text."
        ),
    ] = field(default_factory=list)
    threads_of: Annotated[
        str | None, Parameter(help="List the threads of this session instead of sessions.")
    ] = None
    order: Annotated[Literal["active", "created"], Parameter(help="By which time.")] = "active"
    oldest_first: Annotated[bool, Parameter(help="Begin with the oldest.")] = False

    def query(self, tenant: str) -> Query:
        return Query(
            tenant=tenant,
            session=self.threads_of,
            user=self.user,
            workspace=self.workspace,
            agent=self.agent,
            phases=tuple(self.phase),
            run=self.run,
            label=self.label,
            metadata=dict(map(pair, self.metadata)),
            order=self.order,
            newest_first=not self.oldest_first,
        )


ALL = Filters()


def pair(text: str) -> tuple[str, Any]:
    """`key=value`, with the value as JSON if it is JSON, else as the text it is."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--metadata takes KEY=VALUE, not {text!r}")
    try:
        return name, msgspec.json.decode(value.encode("utf-8", "surrogateescape"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return name, value


async def sessions(
    *,
    filters: Filters = ALL,
    limit: Annotated[
        int,
        Parameter(help="How many at most.", validator=validators.Number(gte=1, lte=LIMITS.page)),
    ] = 50,
    cursor: Annotated[str | None, Parameter(help="Go on where the last page ended.")] = None,
    common: Common = EVERYWHERE,
) -> int:
    """List sessions, the last active first.

    ```
    holdfast sessions --agent shop --phase active --limit 20
    ```

    With `--json`: one document, `{"items": […], "cursor": …}`.
    """
    out = common.output()
    query = filters.query(common.tenant)
    async with common.open() as store:
        page = await store.find(query, cursor=cursor, limit=limit)
    if out.json:
        out.emit({"items": [whole(row) for row in page.items], "cursor": page.cursor})
    else:
        _print(out, page, threads=filters.threads_of is not None)
    return 0


def whole(row: Row) -> dict[str, Any]:
    """A row with all its fields, also those that have their default."""
    return msgspec.structs.asdict(row)


def _print(out: Output, page: Page[Row], *, threads: bool) -> None:
    if page.items:
        width = out.console.width
        out.print(*rows_text(page.items, threads=threads, now=wall_clock(), width=width))
    else:
        out.remark("no threads" if threads else "no sessions")
    if page.cursor is not None:
        out.remark(f"more: add --cursor {page.cursor}")
