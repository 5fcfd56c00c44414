"""Those who hear what happens to a log: each event once and in order, and text as it comes.
Nobody's slowness holds up the others, or what they listen to."""

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

MISSED = 64  # events that are read at once for one that is behind, and may stay there
MISSED_BYTES = 128 << 10  # … and no more than so many bytes of them, or one event
BUFFER = 512  # items that a listener may be behind before it has to read the log itself
BUFFER_BYTES = 256 << 10  # … or so many bytes
LARGE = 64 << 10  # bytes of an event above which no listener keeps its data, as in `info().apart`
_APART, _STUB = b'{"apart":', 256  # how the data of a stub begin, and how long they are at most


class _Apart(Struct):
    item_size: int


class _Stub(Struct):
    apart: _Apart


class Hearer(Protocol):
    """One that is told what happens."""

    def put(self, item: Item) -> None: ...

    def end(self) -> None: ...


class Audience:
    """All who hear what happens to one log. `joined` is called when one more does."""

    def __init__(self, joined: Callable[[], None]) -> None:
        self._joined = joined
        self._hearers: set[Hearer] = set()

    def __bool__(self) -> bool:
        return bool(self._hearers)

    def join(self, hearer: Hearer) -> None:
        """Tell one more, until it leaves."""
        self._hearers.add(hearer)
        self._joined()

    def leave(self, hearer: Hearer) -> None:
        self._hearers.discard(hearer)

    def tell(self, item: Item) -> None:
        for hearer in self._hearers:
            hearer.put(item)

    def end(self) -> None:
        """Nothing more will happen."""
        for hearer in self._hearers:
            hearer.end()


class Heard(Protocol):
    """A log as a listener sees it."""

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
    """About how many bytes an item takes."""
    if isinstance(item, Event):
        return 256 + len(item.data)
    return 64 + (len(item.text) if isinstance(item, Delta) else 0)


def set_apart(event: Event) -> Event:
    """An event without its data where they are large: a stub as `read(inline=False)` gives one,
    but for the hash, which would cost more than the rest."""
    if len(event.data) <= LARGE:
        return event
    return replace(event, data=Raw(_APART + b'{"size":%d}}' % len(event.data)))


def is_stub(event: Event) -> bool:
    """Whether the data of an event are to be read from the log. They may turn out to be what they
    seem: a small payload can look like a stub."""
    return len(event.data) < _STUB and bytes(event.data).startswith(_APART)


def stub_size(event: Event) -> int:
    """How many bytes the data have that a stub stands for."""
    try:
        return msgspec.json.decode(event.data, type=_Stub).apart.size
    except msgspec.MsgspecError:
        return len(event.data)  # it is none


class Listener:
    """One reader of a log: first what it missed, then `CaughtUp`, then what happens. Each event
    comes once, in order; deltas join without a gap. Too slow, it reads the log instead, at
    nobody's cost: what waits for it is bounded in number and in bytes, and large data are left
    in the log until it takes them. Without `whole` it is given stubs of events with large data
    (`is_apart`). Close it, or use it up."""

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
        """Wait for the first event of this kind, and listen no more. Bound the wait with
        `asyncio.timeout`; it ends with an error if the session is closed meanwhile."""
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
        """What is in the log and was not given out, up to where the live state is."""
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
        """The next events of the log, as far as one that may stay behind may hold them (the pages
        of a store are larger), and what stopped it."""
        live, found, held = self._live, list[Event](), 0
        upto = live.state.head + 1  # not further: its text would come again, as in flight
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
            except HoldfastError as error:  # behind what was found
                return found, error
        return found, None

    async def _given(self, item: Item) -> Item:
        """An item with all its data, if that is wanted."""
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
            if item.offset > known:  # some were dropped: the text so far has them
                so_far = self._live.speech.flying.get(item.message)
                if so_far is None:
                    return None  # the message itself is about to come
                text = so_far.text[known : item.offset] + item.text
                item = Delta(item.message, known, text)
            text = item.text[known - item.offset :]
            self._offsets[item.message] = known + len(text)
            return Delta(item.message, known, text) if text else None
        return item
