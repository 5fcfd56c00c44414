"""`holdfast pending`, `approve`, `deny`, `answer` and `abort`: what waits for people, decided in
the log. No agent is needed for it: whoever serves the session goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter, validators
from rich.cells import cell_len
from rich.text import Text

from ..harness.live.inbox import Answer, settle
from ..log import events as ev
from ..log.catalog import Pending, PendingQuery
from ..log.codec import LIMITS
from ..log.events import Key, NewEvent
from ..stores.port import Store, wall_clock
from .failure import UsageError
from .options import EVERYWHERE, Common
from .output import Output, plain
from .render import ago, moment, shortened, warning
from .session import BY, By
from .show import Session, Thread, row_of
from .tail import while_read

PAUSE = 0.5  # seconds between two looks with --watch
SHORTEST = 20  # columns that a title is left
RUNNING = ("running", "waiting")

Item: TypeAlias = Annotated[
    str | None, Parameter(help="The item's id. Default: the only one that waits there.")
]


async def pending(
    *,
    session: Annotated[str | None, Parameter(help="Only what waits in this session.")] = None,
    user: Annotated[str | None, Parameter(help="Only what waits in this user's sessions.")] = None,
    limit: Annotated[
        int,
        Parameter(help="How many at most.", validator=validators.Number(gte=1, lte=LIMITS.page)),
    ] = 50,
    cursor: Annotated[str | None, Parameter(help="Go on where the last page ended.")] = None,
    watch: Annotated[
        bool, Parameter(help="Stay, and tell what comes and what is settled, until Ctrl-C.")
    ] = False,
    common: Common = EVERYWHERE,
) -> int:
    """List what waits for people, over all sessions, oldest first.

    ```
    holdfast pending
    holdfast pending --watch
    ```

    Each line begins with the session and the id that `approve`, `deny` and `answer` take.
    With `--json`: one document, `{"items": […], "cursor": …}`; with `--watch` one line a change,
    `{"opened": {…}}` or `{"settled": {…}}`.
    """
    out = common.output()
    query = PendingQuery(tenant=common.tenant, session=session, user=user)
    async with common.open() as store:
        if watch:
            await while_read(_watch(out, store, query))
        page = await store.pending(query, cursor=cursor, limit=limit)
    if out.json:
        out.emit({"items": [*map(msgspec.structs.asdict, page.items)], "cursor": page.cursor})
        return 0
    out.print(*_table(page.items, wall_clock(), out.console.width))
    if not page.items:
        out.remark("nothing waits")
    if page.cursor is not None:
        out.remark(f"more: add --cursor {page.cursor}")
    return 0


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
    if out.json:
        out.emit({change: msgspec.structs.asdict(item)})
    else:
        style = "green" if change == "opened" else "dim"
        what = f"{item.session}  {item.id}  {_what(item)}  {item.title or ''}{warning(item.risk)}"
        out.print(Text.assemble((f"{change:<8}  ", style), plain(what.rstrip())))


def _what(item: Pending) -> str:
    what = item.what if item.approvals == 1 else f"{item.what} by {item.approvals}"
    return what if item.thread == "main" else f"{what} in {item.thread}"


def _table(items: Sequence[Pending], now: int, width: int) -> Iterator[Text]:
    """Ids are never cut, so that they can be copied; titles get the room that is left."""
    if not items:
        return
    columns = {
        "SESSION": [item.session for item in items],
        "ITEM": [item.id for item in items],
        "WHAT": [_what(item) for item in items],
        "RISK": [str(item.risk) if warning(item.risk) else "" for item in items],
        "FOR": [item.assignee or "" for item in items],
        "SINCE": [ago(item.at, now) for item in items],
        "EXPIRES": [moment(item.expires) if item.expires else "" for item in items],
    }
    table = [[name, *map(plain, cells)] for name, cells in columns.items() if any(cells)]
    rooms = [max(map(cell_len, column)) for column in table]
    titles = ["TITLE", *(plain(item.title or "") for item in items)]
    for at, (cells, title) in enumerate(zip(zip(*table, strict=True), titles, strict=True)):
        padded = zip(cells, rooms, strict=True)
        line = "".join(cell + " " * (room - cell_len(cell)) + "  " for cell, room in padded)
        line += shortened(title, max(width - cell_len(line), SHORTEST))
        yield Text(line.rstrip(), style="" if at else "bold")


# Deciding


async def approve(
    session: Session,
    item: Item = None,
    /,
    *,
    arguments: Annotated[
        str | None, Parameter(help="Other arguments for the call, as a JSON object.")
    ] = None,
    thread: Thread = "main",
    by: By = BY,
    common: Common = EVERYWHERE,
) -> int:
    """Let a call be made that waits for it, perhaps with other arguments.

    ```
    holdfast approve customer-42
    holdfast approve customer-42 0199… --arguments '{"order": "42", "cents": 999}' --actor ann
    ```

    The decision is in the log when this returns. Whichever process serves the session makes the
    call; `holdfast resume` does, if none does. What was decided before is an error that says by
    whom. With `--json`: one document, `{"session": …, "item": …, "outcome": …, "by": …, …}`.
    """
    answer = None if arguments is None else {"arguments": _object(arguments)}
    return await _settle(Key(common.tenant, session, thread), item, "approved", by, common, answer)


async def deny(
    session: Session,
    item: Item = None,
    /,
    *,
    thread: Thread = "main",
    by: By = BY,
    common: Common = EVERYWHERE,
) -> int:
    """Refuse a call that waits; the model is told the reason.

    ```
    holdfast deny customer-42 --reason "too much"
    ```

    With `--json`: one document, as `approve` has.
    """
    return await _settle(Key(common.tenant, session, thread), item, "denied", by, common)


async def answer(
    session: Session,
    item: Annotated[
        str, Parameter(help="The item's id; left out, the only one.", allow_leading_hyphen=True)
    ],
    answer: Annotated[
        str | None,
        Parameter(
            help="The answer: JSON, or a text as it is.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    /,
    *,
    thread: Thread = "main",
    by: By = BY,
    common: Common = EVERYWHERE,
) -> int:
    """Answer a question, or say what a call came to whose outcome is not known.

    ```
    holdfast answer customer-42 '{"refunded": true}'
    holdfast answer customer-42 0199… "the blue one"
    ```

    With `--json`: one document, as `approve` has.
    """
    key = Key(common.tenant, session, thread)
    given, id = (item, None) if answer is None else (answer, item)
    return await _settle(key, id, "answered", by, common, _value(given))


async def abort(
    session: Session, /, *, thread: Thread = "main", by: By = BY, common: Common = EVERYWHERE
) -> int:
    """Stop the run that is going or waits, whichever process drives it.

    ```
    holdfast abort customer-42 --reason "wrong customer"
    ```

    What was said is kept, and so is the queue. Where no run is going there is nothing to stop,
    and no event. With `--json`: one document, `{"session": …, "thread": …, "requested": …}`.
    """
    out, key = common.output(), Key(common.tenant, session, thread)
    async with common.open() as store:
        row = await row_of(store, key)
        going = row.run in RUNNING
        if going:
            payload = ev.AbortRequested(reason=by.reason)
            await store.append(key, [NewEvent.of("abort.requested", payload, actor=by.who)])
    if out.json:
        out.emit({"session": session, "thread": thread, "requested": going})
    else:
        out.print("abort requested") if going else out.remark("no run is going")
    return 0


async def _settle(
    key: Key, item: str | None, outcome: Answer, by: By, common: Common, answer: Any = None
) -> int:
    out = common.output()
    async with common.open() as store:
        await row_of(store, key)
        made = await settle(
            store, key, item, outcome, actor=by.who, reason=by.reason, answer=answer
        )
    if out.json:
        out.emit({"session": key.session, "thread": key.thread, **msgspec.structs.asdict(made)})
    elif made.left:
        out.print(plain(f"counted for {made.item}: yes of {made.by} (event {made.seq})"))
        out.remark(f"{made.left} more must approve it before the call is made")
    else:
        out.print(plain(f"{made.outcome} {made.item} by {made.by} (event {made.seq})"))
        out.remark("who serves the session goes on; `holdfast resume` does, if nobody serves it")
    return 0


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return text


def _object(text: str) -> dict[str, Any]:
    value = _value(text)
    if not isinstance(value, dict):
        raise UsageError(f"--arguments takes a JSON object, not {text!r}")
    return value
