"""Subscribers of a log: each gets every event once and in order, and text as it is streamed. A slow
subscriber delays neither the others nor the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ...errors import HarnessClosed, HoldfastError, LogReplaced, SessionNotFound
from ...log.events import Event, Key
from ...log.state import State
from ...stores.port import Store
from ...values.delta import Delta
from ...values.stream_items import CaughtUp, Item
from .drafts import Speech

MISSED = 64  # events that are read at once for a listener that is behind, and are buffered
MISSED_BYTES = 128 << 10  # … and their total bytes; at least one event is read
BUFFER = 512  # items that are buffered for a listener before it has to read the log itself
BUFFER_BYTES = 256 << 10  # … or their total bytes
LARGE = 64 << 10  # bytes of event data above which listeners buffer a stub, as in `info().apart`
_APART, _STUB = b'{"apart":', 256  # the prefix of a stub's data, and its largest size in bytes


class _Apart(Struct):
    size: int


class _Stub(Struct):
    apart: _Apart


class Hearer(Protocol):
    """A subscriber."""

    def put(self, item: Item) -> None: ...

    def end(self) -> None: ...


class Audience:
    """The subscribers of one log. `joined` is called for each new one."""

    def __init__(self, joined: Callable[[], None]) -> None:
        self._joined = joined
        self._hearers: set[Hearer] = set()

    def __bool__(self) -> bool:
        return bool(self._hearers)

    def join(self, hearer: Hearer) -> None:
        """Add a subscriber, until it leaves."""
        self._hearers.add(hearer)
        self._joined()

    def leave(self, hearer: Hearer) -> None:
        self._hearers.discard(hearer)

    def tell(self, item: Item) -> None:
        for hearer in self._hearers:
            hearer.put(item)

    def end(self) -> None:
        """End all subscriptions."""
        for hearer in self._hearers:
            hearer.end()


class Heard(Protocol):
    """The view of a log that a listener uses."""

    audience: Audience
    speech: Speech
    key: Key
    log: str

    @property
    def store(self) -> Store: ...

    @property
    def state(self) -> State: ...

    @property
    def failure(self) -> HoldfastError | None: ...

    async def event(self, seq: int) -> Event | None: ...


def item_size(item: Item) -> int:
    """The approximate size of an item in bytes."""
    if isinstance(item, Event):
        return 256 + len(item.data)
    return 64 + (len(item.text) if isinstance(item, Delta) else 0)


def set_apart(event: Event) -> Event:
    """The event, or a stub without its data if they are large. The stub is like that of
    `read(inline=False)`, but without the hash, which would be expensive to compute."""
    if len(event.data) <= LARGE:
        return event
    return replace(event, data=Raw(_APART + b'{"size":%d}}' % len(event.data)))


def is_stub(event: Event) -> bool:
    """Whether an event looks like a stub, so that its data must be read from the log. A small
    payload can look like a stub; then the log returns the same data."""
    return len(event.data) < _STUB and bytes(event.data).startswith(_APART)


def stub_size(event: Event) -> int:
    """The size in bytes of the data that a stub stands for."""
    try:
        return msgspec.json.decode(event.data, type=_Stub).apart.size
    except msgspec.MsgspecError:
        return len(event.data)  # not a stub


class Listener:
    """One reader of a log: first the events that it missed, then `CaughtUp`, then live events. Each
    event comes once, in order, and deltas have no gaps. A reader that falls behind reads from the
    log: its buffer is bounded in number and bytes, and large data stay in the log until they are
    read. Without `whole`, events with large data are stubs (`is_stub`). Close it, or read it to
    its end."""

    def __init__(self, live: Heard, after: int, now: bool, *, whole: bool = True) -> None:
        self.after = after
        self._live = live
        self._whole = whole
        self._buffer: deque[Item] = deque()
        self._size = 0
        self._behind = not now
        self._ended = False
        self._told = now
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
        self._live.audience.leave(self)
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
            self._live.audience.leave(self)

    async def _missed(self) -> AsyncGenerator[Item, None]:
        """The events in the log that were not delivered yet, up to the live state."""
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
        if not self._told:
            self._told = True
            yield CaughtUp(live.log, self.after)

    async def _some(self, most: int) -> tuple[list[Event], HoldfastError | None]:
        """The next events of the log, as many as the buffer may hold (a store's pages are larger),
        and the error that stopped the read, if any."""
        live, found, held = self._live, list[Event](), 0
        upto = live.state.head + 1  # no further, or text of later messages would repeat
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
        """An item, with all its data if `whole` is set."""
        if not self._whole or not isinstance(item, Event) or not is_stub(item):
            return item
        return await self._live.event(item.seq) or item

    def _in_flight(self) -> list[Delta]:
        flying = self._live.speech.flying.items()
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
                so_far = self._live.speech.flying.get(item.message)
                if so_far is None:
                    return None  # the message itself is about to arrive
                text = so_far.text[known : item.offset] + item.text
                item = Delta(item.message, known, text)
            text = item.text[known - item.offset :]
            self._offsets[item.message] = known + len(text)
            return Delta(item.message, known, text) if text else None
        return item
