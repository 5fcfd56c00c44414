"""What happens in a session, as server-sent events or page by page; and what waits for a person in
all of them, for whoever waits to be told."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Annotated, Any, Literal

from litestar import Request, Response, get
from litestar.params import HeaderParameter, QueryParameter
from msgspec.structs import replace

from ...errors import InvalidValue, LogReplaced
from ...harness.live.subscribers import is_apart, size_apart
from ...log.catalog import Pending, PendingQuery, Row
from ...log.events import Event
from ...stores.port import Store
from ...wire import NOW, START, EventPage, PendingPage, cursor, read_cursor
from ..http.context import Ask, SessionId, Thread
from ..http.headers import asks_for, takes
from ..http.middleware import STREAM
from ..placement import pagination
from ..streams.response import Streamed
from ..streams.session_stream import Wish, begin

PAGE_BYTES = 4 << 20  # of events in one page; one that is larger comes alone
LOOK = 0.5  # seconds between two looks at the inbox
READ = {"scope": "sessions:read"}
After = Annotated[
    str | None,
    QueryParameter(
        name="after",
        max_length=600,
        description="A cursor: what follows it. A bare number is one of this log, `now` the end "
        "of it. The header Last-Event-ID goes before it.",
    ),
]
Limit = Annotated[int, QueryParameter(ge=1, le=1_000)]
Until = Annotated[
    Literal["idle"] | None,
    QueryParameter(name="until", description="End the stream when nothing goes on any more."),
]
Input = Annotated[
    int | None,
    QueryParameter(
        name="input",
        ge=1,
        le=(1 << 53) - 1,
        description="A message: show what becomes of it, and end with its result.",
    ),
]
Deltas = Annotated[
    bool, QueryParameter(name="deltas", description="Whether to show text in flight.")
]
LastEventId = Annotated[str | None, HeaderParameter(name="Last-Event-ID", max_length=600)]
Wait = Annotated[
    float,
    QueryParameter(name="wait", ge=0, le=3_600, description="Seconds to wait for something new."),
]
Tag = Annotated[
    str | None,
    QueryParameter(name="tag", max_length=64, description="`tag` of a page: wait for another one."),
]
Text = Annotated[str | None, QueryParameter(min_length=1, max_length=400)]
Cursor = Annotated[str | None, QueryParameter(min_length=1, max_length=pagination.LONGEST)]


@get(
    "/sessions/{session_id:str}/events",
    opt={**READ, "stream": True},
    operation_id="get_events",
)
async def events(
    ask: Ask,
    request: Request[Any, Any, Any],
    session_id: SessionId,
    thread: Thread = "main",
    after: After = None,
    last_event_id: LastEventId = None,
    limit: Limit = 100,
    until: Until = None,
    input: Input = None,
    deltas: Deltas = True,
) -> Response[EventPage]:
    """All that follows a cursor: a page of JSON, or with `Accept: text/event-stream` a stream that
    goes on with what happens. `until` and `input` are for streams, and ask for one."""
    place = last_event_id or after
    ends = {"until": until, "input": input}
    if not _streams(request.headers.get("accept", ""), ends):
        where, row = await ask.find(session_id, thread)
        found = await page(where.store, row, place, limit, ask.hold)
        shown = [ask.service.places.naming.event(event) for event in found.items]
        return Response(replace(found, items=shown), headers={"vary": "accept"})
    async with AsyncExitStack() as opened:
        session = await opened.enter_async_context(ask.reading(session_id, thread))
        wish = Wish(after=place, until=until, input=input, deltas=deltas)
        reading = await begin(session, wish, ask.service.removals)
        chunks = ask.service.streams.chunks(reading, ask.still, name=ask.name)
        return Streamed(chunks, opened.pop_all(), patience=ask.patience)


def _streams(accept: str, ends: Mapping[str, object]) -> bool:
    """Whether a stream is asked for: outright, or by saying where it is to end. Who says that and
    takes no stream is refused."""
    asked = [name for name, end in ends.items() if end is not None]
    if asks_for(accept, STREAM) or not asked:
        return asks_for(accept, STREAM)
    if not takes(accept, STREAM):
        raise InvalidValue(
            field=asked[0],
            problem="is for streams, and this request does not accept one",
            remedy=f"send the header Accept: {STREAM}",
        )
    return True


async def page(
    store: Store,
    row: Row,
    after: str | None,
    limit: int,
    hold: Callable[[int], None] = lambda size: None,
) -> EventPage:
    """The next events behind a cursor. `LogReplaced` where it is not of this log. `hold` is called
    with the size of the page before it is read."""
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
        problem, remedy = f"is past event {head}, the last", "read from the beginning"
        raise InvalidValue(field="after", problem=problem, remedy=remedy)
    found, size = await _outlined(store, row, seq, limit)
    hold(size)
    whole = [await _whole(store, row, event) for event in found]
    last = found[-1].seq if found else seq
    return EventPage(items=whole, log=row.log, head=head, cursor=cursor(row.log, last))


async def _outlined(store: Store, row: Row, after: int, limit: int) -> tuple[list[Event], int]:
    """The events of a page, without large data, and how many bytes they have with them."""
    found: list[Event] = []
    size = 0
    read = store.read(
        row.key, after=after, before=row.head + 1, limit=limit, log=row.log, inline=False
    )
    async with aclosing(read):
        async for event in read:
            more = size_apart(event) if is_apart(event) else len(event.data)
            if found and size + more > PAGE_BYTES:
                break
            found.append(event)
            size += more
    return found, size


async def _whole(store: Store, row: Row, event: Event) -> Event:
    if not is_apart(event):
        return event
    read = store.read(row.key, after=event.seq - 1, before=event.seq + 1, log=row.log)
    async with aclosing(read):
        async for whole in read:
            return whole
    return event


@get("/pending", opt={**READ, "waits": True}, operation_id="list_inbox")
async def inbox(
    ask: Ask,
    what: Text = None,
    assignee: Text = None,
    session: Text = None,
    user: Text = None,
    store: Text = None,
    cursor: Cursor = None,
    limit: Annotated[int, QueryParameter(ge=1, le=100)] = 50,
    wait: Wait = 0.0,
    tag: Tag = None,
) -> PendingPage:
    """What waits for a person in all sessions of one's own, oldest first; with the scope
    `sessions:all` in everybody's, or in those of `user`. It comes store by store, the default
    first, or from `store` alone. With `wait`, the answer comes when something waits, or with
    `tag`, when it is not what it was; at the latest after `wait` seconds, and then as it is. A
    store that cannot be asked is named in `missing`, and looked at again while one waits."""
    everybody = user is None and ask.caller.may("sessions:all")
    query = PendingQuery(
        tenant=ask.caller.tenant,
        session=session,
        what=what,
        assignee=assignee,
        user=None if everybody else ask.acting_for(user),
    )
    until = time.monotonic() + min(wait, ask.service.limits.wait_seconds)
    while True:
        page = await pagination.page(
            ask.service.places,
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
        if news or time.monotonic() >= until or ask.service.streams.closed:
            return found
        await asyncio.sleep(LOOK)


def tag_of(items: Iterable[Pending]) -> str:
    """What stands for just these items."""
    known = "\n".join(f"{item.session}/{item.thread}/{item.id}/{item.expires}" for item in items)
    return hashlib.sha256(known.encode()).hexdigest()[:32]


HANDLERS: list[Any] = [events, inbox]
