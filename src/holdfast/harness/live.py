"""A log as one process sees it, live: its state, its history, the text in flight, and those
who listen. Everything comes out of the log, by one reader; nobody's slowness holds it up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from .. import events as ev
from ..catalog import Row
from ..codec import typed
from ..errors import (
    HarnessClosed,
    HoldfastError,
    LogDamaged,
    LogReplaced,
    SessionNotFound,
    StoreUnavailable,
)
from ..events import Event, Key
from ..state import VERSION, State, fold
from ..store import CaughtUp, Snapshot, Store
from ..stores.patience import ended
from .delta import Delta, Growing, Text
from .display import ENDS, Said, Stage, since
from .history import History
from .later import Later

__all__ = ["Delta", "Growing", "Hearer", "Item", "Listener", "Live", "Trouble"]

P = TypeVar("P", bound=ev.Payload)

BUFFER = 512  # items that a listener may be behind before it has to read the log itself
RECENT = 32  # events that are looked up without asking the store
SNAPSHOT = 512  # events between two snapshots
FIRST, LONGEST = 0.05, 2.0  # seconds before following again after a failure, doubled each time
POLL = 0.25  # seconds between two looks at drafts that another process writes


class Trouble(Struct, frozen=True, tag="trouble"):
    """Something went wrong beside the log, and is being tried again or given up."""

    code: str
    problem: str


Item: TypeAlias = Event | Delta | CaughtUp | Trouble


class Hearer(Protocol):
    """One that is told what happens."""

    def put(self, item: Item) -> None: ...

    def end(self) -> None: ...


class Live:
    """One log. `open` before use; `state` is that of the newest event that has arrived here."""

    def __init__(self, store: Store, key: Key) -> None:
        self.store, self.key = store, key
        self.log = ""
        self.row: Row | None = None  # as it was when the log was opened
        self.state = State()
        self.history = History()
        self.flying: dict[str, Growing] = {}
        self.stage = Stage()
        self.failure: HoldfastError | None = None
        self.stuck: HoldfastError | None = None
        self.posting = 0  # messages on their way into the log
        self.endings: list[Callable[[HoldfastError], None]] = []  # told when the log goes
        self.hooked = 0  # up to which event this process has called the agent's hooks
        self.driven = False  # by this process; then deltas come from the driver, not from drafts
        self.watchers: list[Callable[[Event], None]] = []
        self._saved = self._upto = 0  # where the last snapshot is, and where its window begins
        self._recent: deque[Event] = deque(maxlen=RECENT)  # those that came while it followed
        self._speaking: str | None = None  # the message in flight, unless what came ended it
        self._thinking = Growing()
        self._listeners: set[Hearer] = set()
        self._waiters: set[tuple[Callable[[], bool], asyncio.Future[None]]] = set()
        self._reader: asyncio.Task[None] | None = None
        self._polling = Later(POLL, self._poll)

    async def open(self) -> None:
        """Read what is there, then follow."""
        row = await self.store.row(self.key)
        if row is None:
            raise SessionNotFound(
                tenant=self.key.tenant, session=self.key.session, thread=self.key.thread
            )
        self.log, self.row = row.log, row
        await self._load()
        self._reader = asyncio.create_task(self._follow(), name=f"follow {self.key.session}")

    async def aclose(self) -> None:
        """Stop following; those who wait or listen are told."""
        await self._polling.end(cut=True)
        if self._reader is not None:
            await ended(self._reader)
        self._reader = None
        self._fail(self.failure or HarnessClosed(what=f"session {self.key.session!r}"))

    # Waiting

    async def reach(self, head: int) -> State:
        """Wait until event `head` has arrived here."""
        if self.state.head < head:
            await self.until(lambda: self.state.head >= head)
        return self.state

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something is true of this log; looked at after each event."""
        if true():
            return
        if self.failure is not None:
            raise self.failure
        waiter = (true, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        try:
            await waiter[1]
        finally:
            self._waiters.discard(waiter)

    # Listening

    def listen(self, after: int | None = None) -> Listener:
        """All that follows event `after`, or that follows now."""
        listener = Listener(self, self.state.head if after is None else after, after is None)
        self.join(listener)
        return listener

    def join(self, listener: Hearer) -> None:
        """Tell one more, until it leaves."""
        self._listeners.add(listener)
        self._polling.ask()

    def leave(self, listener: Hearer) -> None:
        self._listeners.discard(listener)

    def say(self, message: str, text: str, *, thought: bool = False) -> None:
        """Tell the listeners some more text of a message in flight."""
        offset = 0
        if message != self._speaking:
            self._speaking, self._thinking = message, Growing()
        if thought:
            self._thinking.add(text)
        else:
            so_far = self.flying.setdefault(message, Growing())
            offset = so_far.length
            so_far.add(text)
        self._tell(Delta(message, offset, text, thought))

    def trouble(self, error: HoldfastError, *, stuck: bool = False) -> None:
        """Tell everyone. `stuck`: nobody drives this log until something comes."""
        self.stuck = error if stuck else self.stuck
        self._tell(Trouble(error.code, str(error)))
        self._look_again()

    # Reading

    def spoken(self) -> Said | None:
        """The message in flight, as far as it has come."""
        if (id := self._speaking) is None:
            return None
        body = self.flying[id].now() if id in self.flying else Text.of()
        return Said(id=id, body=body, thinking=self._thinking.now())

    async def _load(self) -> None:
        state, snapshot = State(), None
        with contextlib.suppress(StoreUnavailable):  # then the log is read from its beginning
            snapshot = await self.store.load_snapshot(self.key, VERSION)
        if snapshot is not None and snapshot.log == self.log:
            with contextlib.suppress(msgspec.MsgspecError):  # one that cannot be read is none
                state = msgspec.json.decode(snapshot.state, type=State)
        self.state, self._saved, self._upto = state, state.head, state.window.upto
        self.history = await self._history(state)
        start = min(state.window.upto, state.head)
        batch: list[Event] = []
        kept: deque[Event] = deque(maxlen=BUFFER)
        async for event in self.store.read(self.key, after=start, log=self.log):
            kept.append(event)
            self.history.add(event) if event.seq > self.history.upto else None
            batch.append(event)
            if len(batch) == BUFFER:
                self.state, batch = fold(batch, self.state), []
        self.state = fold(batch, self.state)
        await self._set_stage(kept)

    async def _set_stage(self, kept: Iterable[Event]) -> None:
        first = since(self.state)
        events = [event for event in kept if event.seq >= first]
        if first <= self.state.head and (not events or events[0].seq > first):
            read = self.store.read(
                self.key, after=first - 1, before=self.state.head + 1, log=self.log
            )
            events = [event async for event in read]
        self.stage.begin(self.state, events)

    async def _history(self, state: State) -> History:
        if state.window.seq is None:
            return History()
        made = await self.payload(state.window.seq, ev.CompactionMade)
        if made is None:
            return History(state.window.upto)
        carried = [event for seq in made.carry if (event := await self.event(seq)) is not None]
        return History(made.upto, made.summary, carried)

    async def event(self, seq: int) -> Event | None:
        """The event with this number."""
        place = seq - self._recent[0].seq if self._recent else -1
        if 0 <= place < len(self._recent):
            return self._recent[place]
        read = self.store.read(self.key, after=seq - 1, before=seq + 1, log=self.log)
        found = [event async for event in read]
        return found[0] if found else None

    async def payload(self, seq: int, type: type[P]) -> P | None:
        """Its payload, or None where it is gone or cannot be read."""
        event = await self.event(seq)
        found = typed(event) if event is not None else None
        return found if isinstance(found, type) else None

    async def _follow(self) -> None:
        pause = FIRST
        while True:
            try:
                async for item in self.store.follow(self.key, after=self.state.head, log=self.log):
                    pause = FIRST
                    if isinstance(item, Event):
                        self._arrived(item)
            except (SessionNotFound, LogReplaced, LogDamaged) as error:
                self._fail(error)
                return
            except HoldfastError as error:
                self.trouble(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST)

    def _arrived(self, event: Event) -> None:
        self._recent.append(event)
        self.state = fold((event,), self.state)
        self.history.add(event)
        self.flying.pop(event.id, None)
        if event.kind in ENDS or event.id == self._speaking:
            self._speaking = None
        self.stage.put(event)
        self._tell(event)
        self.stuck = None
        for look in self.watchers:
            look(event)
        self._look_again()

    def _look_again(self) -> None:
        for true, future in self._waiters:
            if not future.done() and true():
                future.set_result(None)

    def _tell(self, item: Item) -> None:
        for listener in self._listeners:
            listener.put(item)

    def _fail(self, error: HoldfastError) -> None:
        self.failure = error
        for tell in [*self.endings]:
            tell(error)
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(error)
        for listener in self._listeners:
            listener.end()

    async def _poll(self) -> None:
        """Drafts of a driver elsewhere, as deltas, while someone listens and a run is going."""
        if not self._listeners:
            return
        if not self.driven and self.state.active is not None:
            head = self.state.head
            with contextlib.suppress(HoldfastError):
                drafts = await self.store.drafts(self.key)
                # What came meanwhile may have ended them: then the next look will tell.
                for draft in drafts if self.state.head == head and not self.driven else ():
                    so_far = self.flying.get(draft.message)
                    if more := draft.text[so_far.length if so_far is not None else 0 :]:
                        self.say(draft.message, more)
        self._polling.ask()

    def snapshot(self) -> Snapshot | None:
        """A snapshot, if the last one is long ago, or begins before what a model reads now:
        whoever opens the log reads on from there."""
        head, upto = self.state.head, self.state.window.upto
        if head - self._saved < SNAPSHOT and upto == self._upto:
            return None
        self._saved, self._upto = head, upto
        text = msgspec.Raw(msgspec.json.encode(self.state))
        return Snapshot(log=self.log, seq=self.state.head, version=VERSION, state=text)


class Listener:
    """One reader of a log: first what it missed, then `CaughtUp`, then what happens. Each event
    comes once, in order; deltas join without a gap. Too slow, it reads the log instead, at
    nobody's cost. Close it, or use it up."""

    def __init__(self, live: Live, after: int, now: bool) -> None:
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
        self._live.leave(self)
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
            self._live.leave(self)

    async def _missed(self) -> AsyncGenerator[Item, None]:
        """What is in the log and was not given out, up to where the live state is."""
        live = self._live
        while self._behind:
            upto = live.state.head + 1  # not further: its text would come again, as in flight
            read = live.store.read(live.key, after=self.after, before=upto, log=live.log)
            async for event in read:
                self.after = event.seq
                yield event
            if self.after >= live.state.head:
                self._behind = False
        if not self._told:
            self._told = True
            yield CaughtUp(live.log, self.after)

    def _in_flight(self) -> list[Delta]:
        flying = self._live.flying.items()
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
                so_far = self._live.flying.get(item.message)
                if so_far is None:
                    return None  # the message itself is about to come
                text = so_far.text[known : item.offset] + item.text
                item = Delta(item.message, known, text)
            text = item.text[known - item.offset :]
            self._offsets[item.message] = known + len(text)
            return Delta(item.message, known, text) if text else None
        return item
