"""`holdfast sessions`: list sessions, or the threads of one session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from ..log.catalog import Query
from ..stores.port import wall_clock
from .error_report import UsageError
from .options import EVERYWHERE, Common, Cursor, Limit, instant, is_duration
from .render import number, rows_text

Phase = Literal["created", "active", "suspended", "expired"]
Run = Literal["running", "waiting", "done", "failed", "aborted", "interrupted"]
Time: TypeAlias = str | None
# Fields of the query by the option that gives their time.
TIMES = {
    "created_after": "created_from",
    "created_before": "created_until",
    "active_after": "active_from",
    "active_before": "active_until",
}
SAME = ("user", "workspace", "agent", "run", "label", "surface", "order", "total")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which rows to list; all conditions must hold."""

    user: Annotated[str | None, Parameter(help="Only sessions of this user.")] = None
    workspace: Annotated[str | None, Parameter(help="Only sessions of this workspace.")] = None
    agent: Annotated[str | None, Parameter(help="Only sessions of this agent.")] = None
    phase: Annotated[list[Phase], Parameter(help="Only sessions in this phase; repeatable.")] = (
        field(default_factory=list)
    )
    run: Annotated[
        Run | None, Parameter(help="Only sessions whose latest run has this status.")
    ] = None
    label: Annotated[str | None, Parameter(help="Only sessions with this label.")] = None
    metadata: Annotated[
        list[str],
        Parameter(
            help="Only sessions with this metadata, given as KEY=VALUE; repeatable. "
            "A VALUE that is valid JSON counts as JSON: 3 is a number, '\"3\"' a text."
        ),
    ] = field(default_factory=list)
    surface: Annotated[
        tuple[str, str] | None,
        Parameter(help="Only sessions with this surface: KIND ADDRESS.", allow_leading_hyphen=True),
    ] = None
    created_after: Annotated[
        Time,
        Parameter(
            help="Only sessions created at or after this time: an ISO date or time, UTC by "
            "default, or a duration before now, such as 2h or 3d."
        ),
    ] = None
    created_before: Annotated[Time, Parameter(help="Only sessions created before this time.")] = (
        None
    )
    active_after: Annotated[Time, Parameter(help="Only sessions active at or after this time.")] = (
        None
    )
    active_before: Annotated[
        Time, Parameter(help="Only sessions last active before this time.")
    ] = None
    threads_of: Annotated[
        str | None, Parameter(help="List the threads of this session instead of sessions.")
    ] = None
    order: Annotated[
        Literal["active", "created"], Parameter(help="Sort by time of activity or of creation.")
    ] = "active"
    oldest_first: Annotated[bool, Parameter(help="Sort oldest first.")] = False
    total: Annotated[bool, Parameter(help="Also count all matches.")] = False

    @property
    def times(self) -> dict[str, str]:
        """The times that were given, by option."""
        return {name: getattr(self, name) for name in TIMES if getattr(self, name) is not None}

    def query(self, tenant: str, now: int) -> Query:
        bounds: dict[str, Any] = {
            TIMES[name]: _bound(name, text, now) for name, text in self.times.items()
        }
        return Query(
            tenant=tenant,
            session=self.threads_of,
            phases=tuple(self.phase),
            metadata=dict(pair("--metadata", text) for text in self.metadata),
            newest_first=not self.oldest_first,
            **{name: getattr(self, name) for name in SAME},
            **bounds,
        )


ALL = Filters()


def _bound(name: str, text: str, now: int) -> int:
    ms = instant(f"--{name.replace('_', '-')}", text, now)
    return ms if name.startswith("created") else ms // 1000


def pair(option: str, text: str) -> tuple[str, Any]:
    """Parse `key=value`; a value that is not JSON is text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} must be KEY=VALUE, got {text!r}")
    return name, json_or_text(value)


def json_or_text(text: str) -> Any:
    """Decode an argument as JSON, or return it as it is."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return text


async def sessions(
    *,
    filters: Filters = ALL,
    limit: Limit = 50,
    cursor: Cursor = None,
    common: Common = EVERYWHERE,
) -> None:
    """List sessions, most recently active first.

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
        items = [*map(msgspec.structs.asdict, page.items)]
        return out.emit({"items": items, "cursor": page.cursor, **total})
    what = "session" if filters.threads_of is None else "thread"
    width = out.console.width
    if page.items:
        out.print(*rows_text(page.items, threads=what == "thread", now=wall_clock(), width=width))
    else:
        out.remark(f"no {what}s")
    if page.total is not None:
        out.remark(f"{number(page.total, what)} in total")
    if page.cursor is not None:
        out.remark(f"for more, add: --cursor {page.cursor}")


def _since(cursor: str | None) -> tuple[int, str | None]:
    """Return the time that durations count back from, and the store's cursor. All pages of one list
    use the same time, which precedes the cursor."""
    first, dot, rest = (cursor or "").partition(".")
    if dot and first.isdecimal() and len(first) < 16:
        return int(first), rest
    return wall_clock(), cursor
