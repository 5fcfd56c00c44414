"""`holdfast pending`, `approve`, `deny`, `answer` and `abort`: list pending items and decide them.

A decision is an event in the log, so these commands need no agent: the worker that serves the
session continues the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter
from rich.text import Text

from ..environment import wall_clock
from ..harness import Answer, settle_pending
from ..log import events as ev
from ..log.catalog import Pending, PendingQuery
from ..log.codec import LIMITS
from ..log.events import Key, NewEvent
from ..stores.pages import existing_row
from ..stores.port import Store
from .error_report import UsageError
from .options import BY, DEFAULTS, By, Common, Cursor, Limit, Session, Thread
from .output import Output, plain
from .render import ago, moment_or, table_text, warning
from .sessions import json_or_text
from .tail import while_read

PAUSE = 0.5  # seconds between two polls with --watch
RUNNING = ("running", "waiting")

Item: TypeAlias = Annotated[
    str | None, Parameter(help="Item id. Default: the only pending item of the session.")
]


async def pending(
    *,
    session: str | None = None,
    user: str | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    watch: bool = False,
    common: Common = DEFAULTS,
) -> None:
    """List pending approvals and questions, oldest first.

    ```
    holdfast pending
    holdfast pending --watch
    ```

    Each line starts with the session and the item id for `approve`, `deny` and `answer`. With
    `--json`, prints one object: `{"items": […], "cursor": …}`; with `--watch`, one line per change,
    `{"opened": {…}}` or `{"settled": {…}}`.

    :param session: Only items of this session.
    :param user: Only items in sessions of this user.
    :param watch: Keep running and show items as they are opened and settled.
    """
    out = common.output()
    query = PendingQuery(tenant=common.tenant, session=session, user=user)
    async with common.open() as store:
        if watch:
            await while_read(_watch(out, store, query))
        page = await store.pending(query, cursor=cursor, limit=limit)
    items = [*map(msgspec.structs.asdict, page.items)]
    lines = _table(page.items, out.console.width)
    out.show({"items": items, "cursor": page.cursor}, lines, "nothing is pending")
    if page.cursor is not None:
        out.note(f"for more, add: --cursor {page.cursor}")


async def _watch(out: Output, store: Store, query: PendingQuery) -> None:
    known: dict[tuple[Key, str], Pending] = {}
    while True:
        now = await _all(store, query)
        for place, item in now.items():
            if place not in known:
                _tell(out, "opened", item)
        for place, item in known.items():
            if place not in now:
                _tell(out, "settled", item)
        known = now
        await asyncio.sleep(PAUSE)


async def _all(store: Store, query: PendingQuery) -> dict[tuple[Key, str], Pending]:
    found: dict[tuple[Key, str], Pending] = {}
    cursor: str | None = None
    while True:
        page = await store.pending(query, cursor=cursor, limit=LIMITS.page)
        found.update({(Key(i.tenant, i.session, i.thread), i.id): i for i in page.items})
        if (cursor := page.cursor) is None:
            return found


def _tell(out: Output, change: str, item: Pending) -> None:
    style = "green" if change == "opened" else "dim"
    what = f"{item.session}  {item.id}  {_what(item)}  {item.title or ''}{warning(item.risk)}"
    line = Text.assemble((f"{change:<8}  ", style), plain(what.rstrip()))
    out.show({change: msgspec.structs.asdict(item)}, line)


def _what(item: Pending) -> str:
    what = item.what if item.approvals == 1 else f"{item.what} by {item.approvals}"
    return what if item.thread == "main" else f"{what} in {item.thread}"


def _table(items: Sequence[Pending], width: int) -> Iterator[Text]:
    now = wall_clock()
    rows = [
        {
            "SESSION": item.session,
            "ITEM": item.id,
            "WHAT": _what(item),
            "RISK": str(item.risk) if warning(item.risk) else "",
            "FOR": item.assignee or "",
            "SINCE": ago(item.at, now),
            "EXPIRES": moment_or("", item.expires),
            "TITLE": item.title or "",
        }
        for item in items
    ]
    return table_text(rows, width, optional=("EXPIRES", "SINCE", "FOR", "WHAT"))


async def approve(
    session: Session,
    item: Item = None,
    /,
    *,
    arguments: str | None = None,
    thread: Thread = "main",
    by: By = BY,
    common: Common = DEFAULTS,
) -> None:
    """Approve a pending tool call.

    ```
    holdfast approve customer-42
    holdfast approve customer-42 0199… --arguments '{"order": "42", "cents": 999}' --actor ann
    ```

    The decision is recorded when the command returns. The worker that serves the session makes the
    call; if there is none, run `holdfast resume`. If the item was already decided, the error says
    by whom. With `--json`, prints one object: `{"session": …, "item": …, "outcome": …, "by": …,
    …}`.

    :param arguments: Call the tool with these arguments instead: a JSON object.
    """
    answer = None if arguments is None else {"arguments": _object(arguments)}
    await _settle(Key(common.tenant, session, thread), item, "approved", by, common, answer)


async def deny(
    session: Session,
    item: Item = None,
    /,
    *,
    thread: Thread = "main",
    by: By = BY,
    common: Common = DEFAULTS,
) -> None:
    """Deny a pending tool call.

    ```
    holdfast deny customer-42 --reason "too much"
    ```

    The model gets the reason. With `--json`, prints one object: `{"session": …, "item": …,
    "outcome": …, "by": …, …}`.
    """
    await _settle(Key(common.tenant, session, thread), item, "denied", by, common)


async def answer(
    session: Session,
    item: Annotated[str, Parameter(allow_leading_hyphen=True)],
    answer: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    thread: Thread = "main",
    by: By = BY,
    common: Common = DEFAULTS,
) -> None:
    """Answer a question, or record the result of a call whose outcome is unknown.

    ```
    holdfast answer customer-42 '{"refunded": true}'
    holdfast answer customer-42 0199… "the blue one"
    ```

    With `--json`, prints one object: `{"session": …, "item": …, "outcome": …, "by": …, …}`.

    :param item: Item id, or the answer if only one item is pending.
    :param answer: Answer: JSON or text.
    """
    key = Key(common.tenant, session, thread)
    given, id = (item, None) if answer is None else (answer, item)
    await _settle(key, id, "answered", by, common, json_or_text(given))


async def abort(
    session: Session, /, *, thread: Thread = "main", by: By = BY, common: Common = DEFAULTS
) -> None:
    """Abort the current run of a session.

    ```
    holdfast abort customer-42 --reason "wrong customer"
    ```

    Aborts the run, whether it is running or waiting, even if another process drives it. Messages
    and the queue are kept. If there is no run, nothing is recorded. With `--json`, prints one
    object: `{"session": …, "thread": …, "requested": …}`.
    """
    out, key = common.output(), Key(common.tenant, session, thread)
    async with common.open() as store:
        row = await existing_row(store, key)
        going = row.run in RUNNING
        if going:
            payload = ev.AbortRequested(reason=by.reason)
            await store.append(key, [NewEvent.of("abort.requested", payload, actor=by.who)])
    about = {"session": session, "thread": thread, "requested": going}
    out.show(about, ["abort requested"] if going else [], "the session has no current run")


async def _settle(
    key: Key, item: str | None, outcome: Answer, by: By, common: Common, answer: Any = None
) -> None:
    out = common.output()
    async with common.open() as store:
        await existing_row(store, key)
        made = await settle_pending(
            store, key, item, outcome, actor=by.who, reason=by.reason, answer=answer
        )
    said = f"{made.outcome} {made.item} by {made.by} (event {made.seq})"
    note = (
        "the worker that serves the session continues it; "
        "if there is none: holdfast resume --agent MODULE:NAME"
    )
    if made.left:
        said = f"approval of {made.by} recorded for {made.item} (event {made.seq})"
        note = f"{made.left} more {'approvals are' if made.left > 1 else 'approval is'} required"
    about = {"session": key.session, "thread": key.thread, **msgspec.structs.asdict(made)}
    out.show(about, said)
    out.note(note)


def _object(text: str) -> dict[str, Any]:
    value = json_or_text(text)
    if not isinstance(value, dict):
        raise UsageError(f"--arguments must be a JSON object, got {text!r}")
    return value
