"""Routes for the events of a session, as a stream or in pages, and for the inbox, which lists the
pending items of all sessions."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Annotated, Any, Literal

from litestar import Request, Response, get
from litestar.params import HeaderParameter, QueryParameter
from msgspec import Struct
from msgspec.structs import replace

from ...errors import InvalidValue, LogReplaced
from ...log.catalog import Pending, PendingQuery, Row
from ...log.events import Event
from ...stores.port import Store
from ...values.stream_items import is_stub, stub_size
from ...wire import NOW, START, EventPage, PendingPage, cursor, read_cursor
from ..http.context import Context
from ..http.headers import asks_for, takes
from ..http.middleware import STREAM
from ..placement import pagination
from ..streams.response import StreamResponse
from ..streams.session_stream import StreamRequest, begin
from .parameters import LAST, READ, SESSION, Before, Cursor, SessionId, Text, Thread
from .parameters import Limit as InboxLimit

PAGE_BYTES = 4 << 20  # of events in one page; a larger event is returned alone
SCANNED = 5_000  # events that a page with kinds looks at
LOOK = 0.5  # seconds between two queries of the inbox
After = Annotated[
    str | None,
    QueryParameter(
        name="after",
        max_length=600,
        description="Return the events after this cursor: a cursor from a response, an event "
        "number, or `now` for the end of the log. The header Last-Event-ID takes precedence.",
    ),
]
Limit = Annotated[int, QueryParameter(ge=1, le=1_000)]
Until = Annotated[
    Literal["idle"] | None,
    QueryParameter(name="until", description="End the stream when the session is idle."),
]
Input = Annotated[
    int | None,
    QueryParameter(
        name="input",
        ge=1,
        le=LAST,
        description="The event number of a message: stream its run, and end with its result.",
    ),
]
Deltas = Annotated[
    bool,
    QueryParameter(
        name="deltas", description="Whether to include the text of unfinished messages."
    ),
]
Reverse = Annotated[
    bool,
    QueryParameter(
        name="reverse",
        description="Return the newest events first: those before `before`, or before the end.",
    ),
]
Kinds = Annotated[
    list[str] | None,
    QueryParameter(
        name="kind",
        max_items=20,
        description="Return only events of these kinds. A page looks at no more than 5,000 events, "
        "so it may be short although more follow.",
    ),
]
Inline = Annotated[
    bool,
    QueryParameter(
        name="inline",
        description="Whether to include large data. If false, the data of an event above 64 KiB is "
        "its size and hash.",
    ),
]
LastEventId = Annotated[str | None, HeaderParameter(name="Last-Event-ID", max_length=600)]
Wait = Annotated[
    float,
    QueryParameter(
        name="wait", ge=0, le=3_600, description="The number of seconds to wait for a change."
    ),
]
Tag = Annotated[
    str | None,
    QueryParameter(
        name="tag", max_length=64, description="The `tag` of a page: wait until the page changes."
    ),
]


@get(f"{SESSION}/events", opt={**READ, "stream": True}, operation_id="get_events")
async def events(
    ctx: Context,
    request: Request[Any, Any, Any],
    session_id: SessionId,
    thread: Thread = "main",
    after: After = None,
    last_event_id: LastEventId = None,
    limit: Limit = 100,
    until: Until = None,
    input: Input = None,
    deltas: Deltas = True,
    before: Before = None,
    reverse: Reverse = False,
    kind: Kinds = None,
    inline: Inline = True,
) -> Response[EventPage]:
    """Return the events after a cursor: a page of JSON, or with `Accept: text/event-stream`, a
    stream that continues with new events. `until` and `input` also request a stream; `before`,
    `reverse`, `kind` and `inline` apply to pages only."""
    place = last_event_id or after
    ends = {"until": until, "input": input}
    if not _streams(request.headers.get("accept", ""), ends):
        where, row = await ctx.find(session_id, thread)
        bounds = PageBounds(
            limit=limit, before=before, reverse=reverse, kinds=frozenset(kind or ()), inline=inline
        )
        found = await page(where.store, row, place, bounds, ctx.hold)
        shown = [ctx.service.places.naming.event(event) for event in found.items]
        return Response(replace(found, items=shown), headers={"vary": "accept"})
    async with AsyncExitStack() as opened:
        session = await opened.enter_async_context(ctx.reading(session_id, thread))
        wish = StreamRequest(after=place, until=until, input=input, deltas=deltas)
        reading = await begin(session, wish, ctx.service.removals)
        chunks = ctx.service.streams.chunks(reading, ctx.still, name=ctx.name)
        return StreamResponse(chunks, opened.pop_all(), patience=ctx.patience)


def _streams(accept: str, ends: Mapping[str, object]) -> bool:
    """Return whether the client requests a stream: by the `Accept` header, or by a parameter that
    says when the stream ends. Rejects such a parameter if the client does not accept a stream."""
    if asks_for(accept, STREAM):
        return True
    asked = [name for name, end in ends.items() if end is not None]
    if asked and not takes(accept, STREAM):
        raise InvalidValue(
            field=asked[0],
            problem="applies only to streams, and this request does not accept a stream",
            remedy=f"send the header Accept: {STREAM}",
        )
    return bool(asked)


class PageBounds(Struct, frozen=True, kw_only=True):
    """Which events a page contains, and whether with their large data."""

    limit: int
    before: int | None = None
    reverse: bool = False
    kinds: frozenset[str] = frozenset()
    inline: bool = True


async def page(
    store: Store,
    row: Row,
    after: str | None,
    bounds: PageBounds,
    hold: Callable[[int], None] = lambda size: None,
) -> EventPage:
    """Return the next events after a cursor, or with `reverse` the newest of them first. Raises
    `LogReplaced` if the cursor belongs to another log. `hold` is called with the size of the page
    before the page is read."""
    head = row.head
    log, seq = (None, head) if after == NOW else read_cursor(after or START)
    if log not in (None, row.log):
        raise LogReplaced(
            tenant=row.tenant,
            session=row.session,
            thread=row.thread,
            known=log or "",
            log=row.log,
        )
    if seq > head:
        raise InvalidValue(
            field="after",
            problem=f"{seq} is past the end of the log (last event: {head})",
            remedy="read from the beginning",
        )
    end = head + 1 if bounds.before is None else min(bounds.before, head + 1)
    found, size, last = await _outlined(store, row, seq, end, bounds)
    hold(size if bounds.inline else 0)
    whole = [await _whole(store, row, event) if bounds.inline else event for event in found]
    if bounds.reverse:
        newest = found[0].seq if found else end - 1
        before = last if last is not None and last > seq + 1 else None
        return EventPage(
            items=whole, log=row.log, head=head, cursor=cursor(row.log, newest), before=before
        )
    place = cursor(row.log, seq if last is None else last)
    return EventPage(items=whole, log=row.log, head=head, cursor=place)


async def _outlined(
    store: Store, row: Row, after: int, before: int, bounds: PageBounds
) -> tuple[list[Event], int, int | None]:
    """Return the events of a page without their large data, their total size in bytes with that
    data, and the number of the last event that was looked at."""
    found: list[Event] = []
    size, last = 0, None
    most = SCANNED if bounds.kinds else bounds.limit
    read = store.read(
        row.key,
        after=after,
        before=before,
        limit=most,
        reverse=bounds.reverse,
        log=row.log,
        inline=False,
    )
    async with aclosing(read):
        async for event in read:
            if not bounds.kinds or event.kind in bounds.kinds:
                more = stub_size(event) if is_stub(event) else len(event.data)
                if found and bounds.inline and size + more > PAGE_BYTES:
                    break
                found.append(event)
                size += more
            last = event.seq
            if len(found) == bounds.limit:
                break
    return found, size, last


async def _whole(store: Store, row: Row, event: Event) -> Event:
    if not is_stub(event):
        return event
    read = store.read(row.key, after=event.seq - 1, before=event.seq + 1, log=row.log)
    async with aclosing(read):
        async for whole in read:
            return whole
    return event


@get("/pending", opt={**READ, "waits": True}, operation_id="list_inbox")
async def inbox(
    ctx: Context,
    what: Text = None,
    assignee: Text = None,
    session: Text = None,
    user: Text = None,
    store: Text = None,
    cursor: Cursor = None,
    limit: InboxLimit = 50,
    wait: Wait = 0.0,
    tag: Tag = None,
) -> PendingPage:
    """Return the pending items of all sessions of the caller, oldest first; with the scope
    `sessions:all`, the pending items of all users, or of `user`. They are listed store by store,
    the default store first, or from `store` only. With `wait`, the response is sent when an item is
    pending, or with `tag`, when the page has changed, but after `wait` seconds at the latest.
    Unavailable stores are listed in `missing`, and retried while waiting."""
    everybody = user is None and ctx.caller.may("sessions:all")
    query = PendingQuery(
        tenant=ctx.caller.tenant,
        session=session,
        what=what,
        assignee=assignee,
        user=None if everybody else ctx.acting_for(user),
    )
    until = time.monotonic() + min(wait, ctx.service.limits.wait_seconds)
    while True:
        page = await pagination.page(
            ctx.service.places,
            query,
            lambda one, after, most: one.pending(query, cursor=after, limit=most),
            store=store,
            cursor=cursor,
            limit=limit,
        )
        found = PendingPage(
            items=page.items, cursor=page.cursor, tag=tag_of(page.items), missing=page.missing
        )
        news = bool(found.items) if tag is None else found.tag != tag
        if news or time.monotonic() >= until or ctx.service.streams.closed:
            return found
        await asyncio.sleep(LOOK)


def tag_of(items: Iterable[Pending]) -> str:
    """Return a hash of these items. It changes when one of them changes."""
    known = "\n".join(f"{item.session}/{item.thread}/{item.id}/{item.expires}" for item in items)
    return hashlib.sha256(known.encode()).hexdigest()[:32]


HANDLERS: list[Any] = [events, inbox]
