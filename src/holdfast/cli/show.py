"""`holdfast show`: one thread as it stands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter, validators

from ..errors import LogDamaged, SessionNotFound
from ..log.catalog import Query, Row
from ..log.events import Event, Key
from ..log.events.defaults import complete
from ..stores.port import Draft, Store, wall_clock
from .describe import cut, damaged_text, event_text
from .listing import whole
from .options import EVERYWHERE, Common
from .output import Output
from .render import fact, row_text

Session: TypeAlias = Annotated[
    str, Parameter(help="The session's id; put -- before one that begins with a dash.")
]
Thread: TypeAlias = Annotated[str, Parameter(help="Which of its threads.")]
Count: TypeAlias = Annotated[
    int, Parameter(help="How many events.", validator=validators.Number(gte=0))
]
After: TypeAlias = Annotated[
    int | None,
    Parameter(
        help="Begin behind this number instead of at the last events.",
        validator=validators.Number(gte=0),
    ),
]
Full: TypeAlias = Annotated[bool, Parameter(help="Show long texts whole.")]


async def show(
    session: Session,
    /,
    *,
    thread: Thread = "main",
    events: Count = 20,
    all: Annotated[bool, Parameter(help="All events.")] = False,
    after: After = None,
    full: Full = False,
    common: Common = EVERYWHERE,
) -> int:
    """Show a session: its row, what it waits for, and its last events.

    ```
    holdfast show customer-42 --events 50
    ```

    With `--json`: one document, `{"row": …, "threads": […], "drafts": […], "events": […]}`.
    An event that cannot be read is shown as unreadable, and the exit code is 1.
    """
    out = common.output()
    async with common.open() as store:
        key = Key(common.tenant, session, thread)
        view = await _look(store, key)
        row = view.row
        first = 0 if all and after is None else start(row, events, after)
        limit = None if all else events
        inline = full or out.json
        async with aclosing(read_on(store, row, first, limit, inline=inline)) as found:
            if out.json:
                return await _show_json(out, view, found)
            return await _show_text(out, view, found, first, full=full)


@dataclass(frozen=True)
class View:
    """What `show` shows beside the events."""

    row: Row
    threads: list[str]
    drafts: list[Draft]


async def _look(store: Store, key: Key) -> View:
    row = await row_of(store, key)
    threads = await store.find(Query(tenant=key.tenant, session=key.session), limit=100)
    return View(row, [other.thread for other in threads.items], await store.drafts(key))


async def row_of(store: Store, key: Key) -> Row:
    """The row of a thread (`SessionNotFound`)."""
    row = await store.row(key)
    if row is None:
        raise SessionNotFound(tenant=key.tenant, session=key.session, thread=key.thread)
    return row


def start(row: Row, events: int, after: int | None) -> int:
    """The number behind which to begin, so that the last `events` are shown."""
    return max(row.head - events, 0) if after is None else after


async def read_on(
    store: Store, row: Row, after: int, limit: int | None, *, inline: bool = True
) -> AsyncGenerator[Event | LogDamaged, None]:
    """The events up to the row's head, with those that cannot be read in their places."""
    end = row.head if limit is None else min(after + limit, row.head)
    while after < end:
        reading = store.read(row.key, after=after, before=end + 1, log=row.log, inline=inline)
        try:
            async with aclosing(reading):
                async for event in reading:
                    after = event.seq
                    yield checked(row.key, event)
            return
        except LogDamaged as error:
            after = max(error.seq, after + 1)
            yield error


def checked(key: Key, event: Event) -> Event | LogDamaged:
    """The event, if its data is JSON: a store may hand bytes on without looking at them."""
    try:
        event.json()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return LogDamaged(
            problem=f"event {event.seq} is not JSON: {error}",
            tenant=key.tenant,
            session=key.session,
            thread=key.thread,
            seq=event.seq,
        )
    return event


async def _show_json(
    out: Output,
    view: View,
    found: AsyncIterator[Event | LogDamaged],
) -> int:
    events = [item async for item in found]
    out.emit(
        {
            "row": whole(view.row),
            "threads": view.threads,
            "drafts": view.drafts,
            "events": [as_json(item) for item in events],
        }
    )
    return int(any(isinstance(item, LogDamaged) for item in events))


def as_json(item: Event | LogDamaged) -> Any:
    """An event, or in the place of one that cannot be read its number and the error."""
    if isinstance(item, LogDamaged):
        return {"seq": item.seq, "error": {"code": item.code, "message": str(item)}}
    return complete(item)


async def _show_text(
    out: Output,
    view: View,
    found: AsyncIterator[Event | LogDamaged],
    first: int,
    *,
    full: bool,
) -> int:
    row = view.row
    out.print(*row_text(row, wall_clock()))
    if len(view.threads) > 1:
        out.print(fact("threads", ", ".join(view.threads)))
    out.print("")
    code, last = 0, first
    async for item in found:
        code |= put(out, item, full=full)
        last = item.seq
    for draft in view.drafts:
        out.print(fact("in flight", cut(draft.text, full)))
    if first:
        out.remark(f"{min(first, row.head):,} earlier events: add --all, or --after NUMBER")
    if last < row.head:
        out.remark(f"{row.head - last:,} later events: add --after {last}")
    return code


def put(out: Output, item: Event | LogDamaged, *, full: bool) -> int:
    """Write one event in either form; returns 1 for one that cannot be read."""
    if out.json:
        out.emit(as_json(item))
    elif isinstance(item, LogDamaged):
        out.print(damaged_text(item))
    else:
        out.print(event_text(item, full=full))
    return int(isinstance(item, LogDamaged))
