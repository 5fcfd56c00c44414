"""Those who hear what happens to a log: each event once and in order, and text as it comes.
Nobody's slowness holds up the others, or what they listen to."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

from ...errors import HarnessClosed, HoldfastError, LogReplaced, SessionNotFound
from ...events import Event, Key
from ...state import State
from ...store import CaughtUp, Store
from .delta import Delta
from .speech import Speech

MISSED = 64  # events that are read at once for one that is behind, and may stay there
BUFFER = 512  # items that a listener may be behind before it has to read the log itself


class Trouble(Struct, frozen=True, tag="trouble"):
    """Something went wrong beside the log, and is being tried again or given up."""

    code: str
    problem: str


Item: TypeAlias = Event | Delta | CaughtUp | Trouble


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


class Listener:
    """One reader of a log: first what it missed, then `CaughtUp`, then what happens. Each event
    comes once, in order; deltas join without a gap. Too slow, it reads the log instead, at
    nobody's cost. Close it, or use it up."""

    def __init__(self, live: Heard, after: int, now: bool) -> None:
        self.after = after
        self._live = live
        self._buffer: deque[Item] = deque()
        self._behind = not now
        self._ended = False
        self._told = now
        self._woken = asyncio.Event()
        self._offsets: dict[str, int] = {}

    def put(self, item: Item) -> None:
        if self._behind:
            return
        if len(self._buffer) >= BUFFER:
            self._buffer.clear()
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
                    if (item := self._next(self._buffer.popleft())) is not None:
                        yield item
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
        live = self._live
        while self._behind:
            upto = live.state.head + 1  # not further: its text would come again, as in flight
            read = live.store.read(
                live.key, after=self.after, before=upto, limit=MISSED, log=live.log
            )
            async for event in read:
                self.after = event.seq
                yield event
            if self.after >= live.state.head:
                self._behind = False
        if not self._told:
            self._told = True
            yield CaughtUp(live.log, self.after)

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
