"""`holdfast search` and `holdfast reindex`: full-text search in all sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import field
from typing import Any

import msgspec
from rich.text import Text

from ..log.catalog import SearchQuery
from ..values.search import Found, IndexProgress
from .options import DEFAULTS, Common, Cursor, Limit, instant, is_duration, option_group
from .output import plain
from .render import moment, number
from .sessions import Phase, Time, first_page_time


@option_group
class SearchFilters:
    """Conditions on the events to search; all must hold.

    :param session: Only this session.
    :param user: Only sessions of this user.
    :param agent: Only threads of this agent.
    :param phase: Only sessions in this phase; repeatable.
    :param kind: Only events of this kind.
    :param label: Only sessions with this label; repeatable.
    :param since: Only events at or after this time: an ISO date or time, UTC by default, or a
        duration before now, such as 2h or 3d.
    :param until: Only events before this time.
    """

    session: str | None = None
    user: str | None = None
    agent: str | None = None
    phase: list[Phase] = field(default_factory=list)
    kind: str | None = None
    label: list[str] = field(default_factory=list)
    since: Time = None
    until: Time = None

    def query(self, text: str, tenant: str, now: int) -> SearchQuery:
        times: dict[str, Any] = {
            name: instant(f"--{name}", value, now)
            for name in ("since", "until")
            if (value := getattr(self, name)) is not None
        }
        return SearchQuery(
            text=text,
            tenant=tenant,
            session=self.session,
            user=self.user,
            agent=self.agent,
            phases=tuple(self.phase),
            kind=self.kind,
            labels=tuple(self.label),
            **times,
        )

    @property
    def has_durations(self) -> bool:
        return any(is_duration(text) for text in (self.since, self.until) if text is not None)


EVERYWHERE = SearchFilters()


async def search(
    query: str,
    /,
    *,
    filters: SearchFilters = EVERYWHERE,
    limit: Limit = 20,
    cursor: Cursor = None,
    common: Common = DEFAULTS,
) -> None:
    """Search the text of all sessions, newest first.

    ```
    holdfast search 'order_4711 "late delivery" -cancelled'
    holdfast search 'quota from:tool' --since 7d
    ```

    All words must be in one event. A query supports "a phrase", prefix*, -without, from:user,
    from:assistant, from:tool and tool:NAME. With `--json`, prints one object: `{"hits": […],
    "cursor": …, "behind": …, "scanned": …}`.

    :param query: Search query.
    """
    out = common.output()
    now, cursor = first_page_time(cursor)
    wanted = filters.query(query, common.tenant, now)
    async with common.open() as store:
        page = await store.search(wanted, cursor=cursor, limit=limit)
    if page.cursor is not None and filters.has_durations:
        page = msgspec.structs.replace(page, cursor=f"{now}.{page.cursor}")
    lines = [line for hit in page.hits for line in _hit_text(hit)]
    out.show(msgspec.structs.asdict(page), lines, "no matches" if page.cursor is None else "")
    if page.behind:
        out.note("the index is not up to date yet: search again")
    if page.cursor is not None:
        out.note(f"for more, add: --cursor {page.cursor}")


async def reindex(*, common: Common = DEFAULTS) -> None:
    """Rebuild the search index of a store.

    ```
    holdfast reindex
    ```

    Each search updates the index. Rebuild it after a program has declared which text of its own
    events is searchable. The sessions are not changed.
    """
    out = common.output()
    last: IndexProgress | None = None
    async with common.open() as store:
        with out.working("indexing") as told:
            async with aclosing(store.reindex()) as progress:
                async for last in progress:
                    told(f"{last.done} of {number(last.total, 'thread')}")
    if last is None:
        out.show({"indexed": None}, "this store has no index: a search reads the events")
    else:
        out.show({"indexed": last.total}, f"indexed {number(last.total, 'thread')}")


def _hit_text(hit: Found) -> Iterator[Text]:
    where = hit.session if hit.thread == "main" else f"{hit.session} / {hit.thread}"
    by = hit.role or hit.kind
    yield Text(plain(f"{moment(hit.at)}  {where}  event {hit.seq}  {by}"), "dim")
    text, at = Text("    "), 0
    for start, end in hit.marks:
        text.append(_line(hit.excerpt[at:start]))
        text.append(_line(hit.excerpt[start:end]), "bold")
        at = end
    text.append(_line(hit.excerpt[at:]))
    yield text


def _line(text: str) -> str:
    return plain(text.translate({ord(char): " " for char in "\n\r\t"}))
