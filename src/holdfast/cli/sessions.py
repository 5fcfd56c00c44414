"""`holdfast sessions`: list sessions, or the threads of one session."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from ..environment import wall_clock
from ..log.catalog import Query
from .error_report import UsageError
from .options import DEFAULTS, Common, Cursor, Limit, instant, is_duration, option_group
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


@option_group
class Filters:
    """Conditions on the sessions to list; all must hold.

    :param user: Only sessions of this user.
    :param workspace: Only sessions of this workspace.
    :param agent: Only sessions of this agent.
    :param phase: Only sessions in this phase; repeatable.
    :param run: Only sessions whose latest run has this status.
    :param label: Only sessions with this label.
    :param metadata: Only sessions with this metadata, given as KEY=VALUE; repeatable. A VALUE that
        is valid JSON is read as JSON: 3 is a number, '"3"' is a string.
    :param surface: Only sessions with this surface: KIND ADDRESS.
    :param created_after: Only sessions created at or after this time: an ISO date or time, UTC by
        default, or a duration before now, such as 2h or 3d.
    :param created_before: Only sessions created before this time.
    :param active_after: Only sessions active at or after this time.
    :param active_before: Only sessions last active before this time.
    :param threads_of: List the threads of this session instead of sessions.
    :param order: Sort by time of activity or of creation.
    :param oldest_first: Sort oldest first.
    :param total: Also count all matches.
    """

    user: str | None = None
    workspace: str | None = None
    agent: str | None = None
    phase: list[Phase] = field(default_factory=list)
    run: Run | None = None
    label: str | None = None
    metadata: list[str] = field(default_factory=list)
    surface: Annotated[tuple[str, str] | None, Parameter(allow_leading_hyphen=True)] = None
    created_after: Time = None
    created_before: Time = None
    active_after: Time = None
    active_before: Time = None
    threads_of: str | None = None
    order: Literal["active", "created"] = "active"
    oldest_first: bool = False
    total: bool = False

    @property
    def times(self) -> dict[str, str]:
        """The times that the user passed, by option."""
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
    """Decode an argument as JSON. If it is not valid JSON, return it unchanged."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return text


async def sessions(
    *,
    filters: Filters = ALL,
    limit: Limit = 50,
    cursor: Cursor = None,
    common: Common = DEFAULTS,
) -> None:
    """List sessions, most recently active first.

    ```
    holdfast sessions --agent shop --phase active --limit 20
    ```

    With `--json`, prints one object: `{"items": […], "cursor": …}`.
    """
    out = common.output()
    now, cursor = first_page_time(cursor)
    query = filters.query(common.tenant, now)
    async with common.open() as store:
        page = await store.find(query, cursor=cursor, limit=limit)
    if page.cursor is not None and any(map(is_duration, filters.times.values())):
        page = msgspec.structs.replace(page, cursor=f"{now}.{page.cursor}")
    total = {} if page.total is None else {"total": page.total}
    items = [*map(msgspec.structs.asdict, page.items)]
    what = "session" if filters.threads_of is None else "thread"
    width = out.console.width
    lines = rows_text(page.items, threads=what == "thread", now=wall_clock(), width=width)
    out.show({"items": items, "cursor": page.cursor, **total}, lines, f"no {what}s")
    if page.total is not None:
        out.note(f"{number(page.total, what)} in total")
    if page.cursor is not None:
        out.note(f"for more, add: --cursor {page.cursor}")


def first_page_time(cursor: str | None) -> tuple[int, str | None]:
    """Return the time that durations are subtracted from, and the cursor for the store. All pages
    of a list use the time of the first page, which is contained in the cursor that this command
    prints.
    """
    first, dot, rest = (cursor or "").partition(".")
    if dot and first.isdecimal() and len(first) < 16:
        return int(first), rest
    return wall_clock(), cursor
