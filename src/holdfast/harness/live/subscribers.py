"""Subscribers of a log: each gets every event once and in order, and text as it is streamed. A slow
subscriber does not delay other subscribers or the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from ...errors import HarnessClosed, HoldfastError, LogReplaced, SessionNotFound
from ...log.events import Event, Key
from ...log.state import State
from ...stores.port import Store
from ...values.delta import Delta
from ...values.stream_items import CaughtUp, Item, is_stub, item_size, set_apart
from .drafts import MessagesInFlight

MISSED = 64  # events that are read at once for a listener that is behind, and are buffered
MISSED_BYTES = 128 << 10  # … and their total bytes; at least one event is read
BUFFER = 512  # items that are buffered for a listener before it has to read the log itself
BUFFER_BYTES = 256 << 10  # … or their total bytes


class Subscriber(Protocol):
    """Receives the items of a log: `put` is called for each item, `end` after the last one."""

    def put(self, item: Item) -> None: ...

    def end(self) -> None: ...


class Subscribers:
    """The subscribers of one log. `joined` is called for each new subscriber."""

    def __init__(self, joined: Callable[[], None]) -> None:
        self._joined = joined
        self._subscribers: dict[Subscriber, None] = {}  # in the order in which they joined

    def __bool__(self) -> bool:
        return bool(self._subscribers)

    def join(self, subscriber: Subscriber) -> None:
        """Add a subscriber. It receives all items until `leave` is called."""
        self._subscribers[subscriber] = None
        self._joined()

    def leave(self, subscriber: Subscriber) -> None:
        self._subscribers.pop(subscriber, None)

    def publish(self, item: Item) -> None:
        for subscriber in self._subscribers:
            subscriber.put(item)

    def end(self) -> None:
        """End all subscriptions."""
        for subscriber in self._subscribers:
            subscriber.end()


class ListenedLog(Protocol):
    """The attributes and methods of a live log that a listener uses."""

    subscribers: Subscribers
    in_flight: MessagesInFlight
    key: Key
    log: str

    @property
    def store(self) -> Store: ...

    @property
    def state(self) -> State: ...

    @property
    def failure(self) -> HoldfastError | None: ...

    async def event(self, seq: int) -> Event | None: ...


class Listener:
    """One reader of a log: it gets the events that it missed, then `CaughtUp`, then live events.
    Each event is delivered once, in order, and deltas have no gaps. A reader that falls behind
    reads from the log: its buffer is bounded in number and bytes, and large data stays in the log
    until it is read. Without `whole`, events with large data are stubs (`is_stub`). Close the
    listener, or read it to its end."""

    def __init__(self, live: ListenedLog, after: int, now: bool, *, whole: bool = True) -> None:
        self.after = after
        self._live = live
        self._whole = whole
        self._buffer: deque[Item] = deque()
        self._size = 0
        self._behind = not now
        self._ended = False
        self._caught_up = now
        self._woken = asyncio.Event()
        self._offsets: dict[str, int] = {}

    def put(self, item: Item) -> None:
        if self._behind:
            return
        if isinstance(item, Event):
            item = set_apart(item)
        self._size += item_size(item)
        if len(self._buffer) >= BUFFER or self._size > BUFFER_BYTES:
            self._buffer.clear()
            self._size = 0
            self._behind = True
        else:
            self._buffer.append(item)
        self._woken.set()

    def end(self) -> None:
        self._ended = True
        self._woken.set()

    def close(self) -> None:
        self._live.subscribers.leave(self)
        self.end()

    def __aiter__(self) -> AsyncGenerator[Item, None]:
        return self._items()

    async def first(self, kind: str) -> Event:
        """Wait for the first event of this kind, then close the listener. Limit the wait with
        `asyncio.timeout`. Raises an error if the session is closed first."""
        async with contextlib.aclosing(self._items()) as items:
            async for item in items:
                if isinstance(item, Event) and item.kind == kind:
                    return item
        raise self._live.failure or HarnessClosed(what=f"session {self._live.key.session!r}")

    async def _items(self) -> AsyncGenerator[Item, None]:
        try:
            while True:
                if self._behind:
                    async for event in self._missed():
                        yield event
                    for delta in self._in_flight():
                        yield delta
                while self._buffer:
                    taken = self._buffer.popleft()
                    self._size -= item_size(taken)
                    if (item := self._next(taken)) is not None:
                        yield await self._given(item)
                if self._behind:
                    continue
                if self._ended:
                    if isinstance(self._live.failure, (LogReplaced, SessionNotFound)):
                        raise self._live.failure
                    return
                self._woken.clear()
                await self._woken.wait()
        finally:
            self._live.subscribers.leave(self)

    async def _missed(self) -> AsyncGenerator[Item, None]:
        """Yield the events in the log that this listener has not delivered yet, up to the current
        state."""
        live, most = self._live, MISSED
        while self._behind:
            some, failed = await self._some(most)
            most = min(2 * max(len(some), 1), MISSED)
            for event in some:
                self.after = event.seq
                yield await self._given(event)
            if failed is not None:
                raise failed
            if self.after >= live.state.head:
                self._behind = False
        if not self._caught_up:
            self._caught_up = True
            yield CaughtUp(live.log, self.after)

    async def _some(self, most: int) -> tuple[list[Event], HoldfastError | None]:
        """Read the next events of the log, as many as fit into the buffer (a page of the store may
        be larger). Returns them, and the error that stopped the read, if any."""
        live, found, held = self._live, list[Event](), 0
        upto = live.state.head + 1  # beyond it, messages would repeat streamed text
        read = live.store.read(
            live.key, after=self.after, before=upto, limit=most, log=live.log, inline=False
        )
        async with contextlib.aclosing(read):
            try:
                async for event in read:
                    found.append(event)
                    held += item_size(event)
                    if held >= MISSED_BYTES:
                        break
            except HoldfastError as error:  # deliver the events before the error first
                return found, error
        return found, None

    async def _given(self, item: Item) -> Item:
        """Return the item, with all its data if `whole` is set."""
        if not self._whole or not isinstance(item, Event) or not is_stub(item):
            return item
        return await self._live.event(item.seq) or item

    def _in_flight(self) -> list[Delta]:
        flying = self._live.in_flight.flying.items()
        found = [self._next(Delta(id, 0, so_far.text)) for id, so_far in flying]
        return [delta for delta in found if isinstance(delta, Delta)]

    def _next(self, item: Item) -> Item | None:
        if isinstance(item, Event):
            if item.seq <= self.after:
                return None
            self.after = item.seq
            self._offsets.pop(item.id, None)
        elif isinstance(item, Delta) and not item.thought:
            known = self._offsets.get(item.message, 0)
            if item.offset > known:  # some deltas were dropped: use the full text so far
                so_far = self._live.in_flight.flying.get(item.message)
                if so_far is None:
                    return None  # the message itself is about to arrive
                text = so_far.text[known : item.offset] + item.text
                item = Delta(item.message, known, text)
            text = item.text[known - item.offset :]
            self._offsets[item.message] = known + len(text)
            return Delta(item.message, known, text) if text else None
        return item
