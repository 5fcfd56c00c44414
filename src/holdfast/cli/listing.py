"""`holdfast sessions`: which sessions there are, or which threads one has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter, validators

from ..log.catalog import Page, Query, Row
from ..log.codec import LIMITS
from ..stores.port import wall_clock
from .failure import UsageError
from .options import EVERYWHERE, Common, instant, is_duration
from .output import Output
from .render import number, rows_text

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
    surface: Annotated[
        tuple[str, str] | None,
        Parameter(help="Only sessions with this surface: KIND ADDRESS.", allow_leading_hyphen=True),
    ] = None
    created_after: Annotated[
        str | None,
        Parameter(
            help="Only sessions begun at this time or later: an ISO date or time, UTC unless it "
            "says otherwise, or a duration back from now, such as 2h or 3d."
        ),
    ] = None
    created_before: Annotated[
        str | None, Parameter(help="Only sessions begun earlier than this.")
    ] = None
    active_after: Annotated[
        str | None, Parameter(help="Only sessions active at this time or later.")
    ] = None
    active_before: Annotated[
        str | None, Parameter(help="Only sessions last active earlier than this.")
    ] = None
    threads_of: Annotated[
        str | None, Parameter(help="List the threads of this session instead of sessions.")
    ] = None
    order: Annotated[Literal["active", "created"], Parameter(help="By which time.")] = "active"
    oldest_first: Annotated[bool, Parameter(help="Begin with the oldest.")] = False
    total: Annotated[bool, Parameter(help="Also count all that answer.")] = False

    @property
    def times(self) -> dict[str, str]:
        """The times that were given, by the field of the query that they are for."""
        times = {
            "created_from": self.created_after,
            "created_until": self.created_before,
            "active_from": self.active_after,
            "active_until": self.active_before,
        }
        return {name: text for name, text in times.items() if text is not None}

    def query(self, tenant: str, now: int) -> Query:
        return Query(
            tenant=tenant,
            session=self.threads_of,
            user=self.user,
            workspace=self.workspace,
            agent=self.agent,
            phases=tuple(self.phase),
            run=self.run,
            label=self.label,
            surface=self.surface,
            metadata=dict(pair("--metadata", text) for text in self.metadata),
            order=self.order,
            newest_first=not self.oldest_first,
            total=self.total,
            **{name: _bound(name, text, now) for name, text in self.times.items()},
        )


ALL = Filters()


def _bound(name: str, text: str, now: int) -> int:
    column, _, end = name.partition("_")
    option = f"--{column}-{'after' if end == 'from' else 'before'}"
    ms = instant(option, text, now)
    return ms if column == "created" else ms // 1000


def pair(option: str, text: str) -> tuple[str, Any]:
    """`key=value`, with the value as JSON if it is JSON, else as the text it is."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} takes KEY=VALUE, not {text!r}")
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
    now, cursor = _since(cursor)
    query = filters.query(common.tenant, now)
    async with common.open() as store:
        page = await store.find(query, cursor=cursor, limit=limit)
    if page.cursor is not None and any(map(is_duration, filters.times.values())):
        page = msgspec.structs.replace(page, cursor=f"{now}.{page.cursor}")
    if out.json:
        total = {} if page.total is None else {"total": page.total}
        out.emit({"items": [whole(row) for row in page.items], "cursor": page.cursor, **total})
    else:
        _print(out, page, threads=filters.threads_of is not None)
    return 0


def _since(cursor: str | None) -> tuple[int, str | None]:
    """From when durations count back, and the store's cursor: the pages of one walk have one
    now, which stands before the cursor."""
    first, dot, rest = (cursor or "").partition(".")
    if dot and first.isdecimal() and len(first) < 16:
        return int(first), rest
    return wall_clock(), cursor


def whole(row: Row) -> dict[str, Any]:
    """A row with all its fields, also those that have their default."""
    return msgspec.structs.asdict(row)


def _print(out: Output, page: Page[Row], *, threads: bool) -> None:
    if page.items:
        width = out.console.width
        out.print(*rows_text(page.items, threads=threads, now=wall_clock(), width=width))
    else:
        out.remark("no threads" if threads else "no sessions")
    if page.total is not None:
        out.remark(f"{number(page.total, 'thread' if threads else 'session')} in all")
    if page.cursor is not None:
        out.remark(f"more: add --cursor {page.cursor}")
