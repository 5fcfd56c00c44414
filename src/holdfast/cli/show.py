"""`holdfast show`: the state and the latest events of one thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter, validators

from ..environment import wall_clock
from ..errors import LogDamaged
from ..log.catalog import Query, Row
from ..log.events import Event, Key
from ..log.events.defaults import complete
from ..stores.pages import existing_row
from ..stores.port import Draft, Store
from .event_text import cut, damaged_text, event_text
from .options import DEFAULTS, Common, Session, Thread
from .output import Output
from .render import fact, number, row_text

Count: TypeAlias = Annotated[
    int, Parameter(help="Number of events to show.", validator=validators.Number(gte=0))
]
After: TypeAlias = Annotated[
    int | None,
    Parameter(
        help="Show events after this number instead of the latest ones.",
        validator=validators.Number(gte=0),
    ),
]
Full: TypeAlias = Annotated[bool, Parameter(help="Do not truncate long texts.")]


async def show(
    session: Session,
    /,
    *,
    thread: Thread = "main",
    events: Count = 20,
    all: bool = False,
    after: After = None,
    full: Full = False,
    common: Common = DEFAULTS,
) -> int:
    """Show a session: its state and its latest events.

    ```
    holdfast show customer-42 --events 50
    ```

    With `--json`, prints one object: `{"row": …, "threads": […], "drafts": […], "events": […]}`.
    Unreadable events are marked, and the exit code is 1 if there are any.

    :param all: Show all events.
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
class _ThreadView:
    """The data that `show` prints in addition to the events: the row, all threads, and
    the drafts.
    """

    row: Row
    threads: list[str]
    drafts: list[Draft]


async def _look(store: Store, key: Key) -> _ThreadView:
    row = await existing_row(store, key)
    threads = await store.find(Query(tenant=key.tenant, session=key.session), limit=100)
    return _ThreadView(row, [other.thread for other in threads.items], await store.drafts(key))


def start(row: Row, events: int, after: int | None) -> int:
    """Return the event number after which to start reading: `after`, or by default the number that
    yields the last `events` events.
    """
    return max(row.head - events, 0) if after is None else after


async def read_on(
    store: Store, row: Row, after: int, limit: int | None, *, inline: bool = True
) -> AsyncGenerator[Event | LogDamaged, None]:
    """Read the events up to the row's head. For an unreadable event, yield its error."""
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
    """Return the event, or an error if its data is not JSON. Stores do not parse the data."""
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
    view: _ThreadView,
    found: AsyncIterator[Event | LogDamaged],
) -> int:
    events = [item async for item in found]
    out.emit(
        {
            "row": msgspec.structs.asdict(view.row),
            "threads": view.threads,
            "drafts": view.drafts,
            "events": [as_json(item) for item in events],
        }
    )
    return int(any(isinstance(item, LogDamaged) for item in events))


def as_json(item: Event | LogDamaged) -> Any:
    """Return an event as a JSON value. For an unreadable event, return its number and the error."""
    if isinstance(item, LogDamaged):
        return {"seq": item.seq, "error": {"code": item.code, "message": str(item)}}
    return complete(item)


async def _show_text(
    out: Output,
    view: _ThreadView,
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
        out.print(fact("draft", cut(draft.text, full)))
    if first:
        out.remark(f"{number(min(first, row.head), 'earlier event')}: add --all or --after NUMBER")
    if last < row.head:
        out.remark(f"{number(row.head - last, 'later event')}: add --after {last}")
    return code


def put(out: Output, item: Event | LogDamaged, *, full: bool) -> int:
    """Print one event; return 1 if it is unreadable."""
    if out.json:
        out.emit(as_json(item))
    elif isinstance(item, LogDamaged):
        out.print(damaged_text(item))
    else:
        out.print(event_text(item, full=full))
    return int(isinstance(item, LogDamaged))
