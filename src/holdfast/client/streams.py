"""The streams of the client: the stream of one message, and the stream of a whole thread."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from .. import wire
from ..errors import InvalidValue, ServerError
from ..log.events import Event, Key, new_id
from ..values.media import Media
from ..values.options import Content, RunLimits, SendOptions, check_options
from ..values.result import Result, StreamResult
from ..values.status import Status
from ..values.stream_items import CaughtUp, Item
from ..values.watch import MessageWatch
from .location import ThreadLocation
from .reconnecting_feed import Feed

PAGE = 500  # events that are requested at once


class EventBounds(Struct, frozen=True, kw_only=True):
    """Which events to read: those after a cursor or a number, before a number, of some kinds, and
    in which order."""

    after: str = "0"
    before: int | None = None
    kinds: tuple[str, ...] = ()
    reverse: bool = False


ALL = EventBounds()


async def post(place: ThreadLocation, content: Content, options: SendOptions) -> wire.Accepted:
    """Send a message, and return when it is stored in the log. If the caller passes no idempotency
    key, one new key is used for all attempts."""
    check_options(options)
    if "actor" in options:
        problem, remedy = "cannot be set: it is always the owner of the API key", "omit it"
        raise InvalidValue(field="actor", problem=problem, remedy=remedy)
    body = wire.SendMessage(
        content=_content(content),
        busy=options.get("busy") or "queue",
        metadata=dict(options.get("metadata") or {}),
        model=options.get("model"),
        limits=_limits(options.get("limits")),
    )
    key = options.get("key")
    return await place.call("POST", "/messages", wire.Accepted, body=body, key=key)


def _content(content: Content) -> wire.Content:
    if isinstance(content, str):
        return content
    parts = [content] if isinstance(content, Media) else content
    if not isinstance(parts, (list, tuple)) or not all(isinstance(p, (str, Media)) for p in parts):
        raise InvalidValue(
            field="content",
            problem=f"has the type {type(content).__name__}",
            remedy="pass text, Media(data, media_type), or a list of them",
        )
    return [
        wire.MediaPart(data=part.data, media_type=part.media_type, name=part.name)
        if isinstance(part, Media)
        else part
        for part in parts
    ]


def _limits(limits: RunLimits | Mapping[str, float] | None) -> Any:
    given = msgspec.to_builtins(limits) if isinstance(limits, RunLimits) else dict(limits or {})
    return {name: value for name, value in given.items() if value is not None}


class Stream(StreamResult):
    """The stream of one message: events and deltas in order, until its run waits for user input or
    has ended; `result` is available afterwards. The message is sent once, and the client reconnects
    if a connection is lost. Leaving the loop does not stop the run; `cancel` does.

    See [the client](../client.md).
    """

    def __init__(
        self, place: ThreadLocation, content: Content, options: SendOptions, *, deltas: bool = True
    ) -> None:
        self._place, self._content, self._deltas = place, content, deltas
        self._options: SendOptions = {**options, "key": options.get("key") or new_id()}
        self._cancelled = False
        self.seq: int | None = None
        self.cursor: str | None = None

    def __aiter__(self) -> AsyncGenerator[Item, None]:
        return self._items()

    async def _items(self) -> AsyncGenerator[Item, None]:
        place = self._place
        if self._cancelled:
            self._result = Result(
                session=place.session, thread=place.thread, run=None, status="removed"
            )
            return
        if self.cursor is None:
            accepted = await post(place, self._content, self._options)
            self.seq, self.cursor = accepted.seq, accepted.cursor
        deltas = self._deltas
        feed = place.feed(self.cursor, whole=deltas, input=self.seq, deltas=deltas)
        async with contextlib.aclosing(feed.parts()) as parts:
            async for part in parts:
                self.cursor = feed.cursor
                if isinstance(part, wire.End):
                    self._result = part.result
                elif not isinstance(part, CaughtUp):
                    yield part
        if self._result is None:
            raise ServerError(problem="the server ended the stream without a result")

    async def cancel(self, reason: str | None = None) -> None:
        """Stop the run of this message, but no other run. If the run has not started, remove the
        message from the queue. If the message was not sent yet, it is not sent."""
        place = self._place
        if self.seq is None:
            self._cancelled = True
            return
        try:
            await place.call("DELETE", f"/follow-ups/{self.seq}", wire.Followed)
            return
        except InvalidValue:
            pass  # not in the queue any more: a run handles it
        if (run := await self._run(self.seq)) is not None:
            await place.call("POST", "/abort", Status, body=wire.Abort(reason=reason, run=run))

    async def _run(self, seq: int) -> str | None:
        """Return the id of the run that handles message `seq`, or None."""
        watch = MessageWatch(Key("", self._place.session, self._place.thread), seq)
        for event in await read_events(self._place, EventBounds(after=str(seq - 1))):
            watch.see(event)
            if watch.run is not None:
                break
        return watch.run


class Follow:
    """The stream of a thread after a cursor: past events, `CaughtUp`, then live events, for as long
    as the caller reads. To continue later, or in another process, pass `cursor` as `after`.

    See [the client](../client.md).
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    @property
    def cursor(self) -> str:
        return self._feed.cursor

    def __aiter__(self) -> AsyncGenerator[Item, None]:
        return self._items()

    async def _items(self) -> AsyncGenerator[Item, None]:
        async with contextlib.aclosing(self._feed.parts()) as parts:
            async for part in parts:
                if not isinstance(part, wire.End):
                    yield part

    async def first(self, kind: str) -> Event:
        """Wait for the first event of this kind. Limit the wait with `asyncio.timeout`."""
        async with contextlib.aclosing(self._items()) as items:
            async for item in items:
                if isinstance(item, Event) and item.kind == kind:
                    return item
        raise ServerError(problem=f"the stream ended before the event {kind!r}")


async def read_events(
    place: ThreadLocation, bounds: EventBounds = ALL, *, most: int | None = None
) -> list[Event]:
    """Read at most `most` events within these bounds."""
    found: list[Event] = []
    after, before = bounds.after, bounds.before
    while most is None or len(found) < most:
        query: dict[str, Any] = {
            "after": after,
            "before": before,
            "reverse": bounds.reverse or None,
            "kind": [*bounds.kinds] or None,
            "limit": PAGE if most is None else min(PAGE, most - len(found)),
        }
        page = await place.call("GET", "/events", wire.EventPage, query=query)
        found.extend(page.items)
        if bounds.reverse:
            if page.before is None:
                break
            before = page.before
            continue
        _, last = wire.read_cursor(page.cursor)
        if last >= (page.head if before is None else min(page.head, before - 1)):
            break
        after = page.cursor
    return found
