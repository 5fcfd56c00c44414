"""The live view of a log in one process: its state, its history, the text in flight, and its
subscribers. One reader follows the log, and a slow subscriber does not delay it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from ...backoff import Backoff
from ...cancellation import cancellable, ended
from ...errors import (
    HarnessClosed,
    HoldfastError,
    LogDamaged,
    LogReplaced,
    SessionNotFound,
    StoreUnavailable,
)
from ...log import events as ev
from ...log.catalog import Row
from ...log.conversation import REWOUND
from ...log.events import Event, Key
from ...log.state import State, fold
from ...stores.port import Store
from ...values.display import LiveDisplay
from ...values.stream_items import Trouble, item_size
from .debounce import Debounced
from .drafts import MessagesInFlight
from .log_loader import LogLoader, Snapshots, payload_of
from .prompt_history import History
from .subscribers import BUFFER, Listener, Subscriber, Subscribers

__all__ = ["BUFFER", "Listener", "Live", "Subscriber"]

P = TypeVar("P", bound=ev.Payload)

RECENT = 32  # recent events that are kept in memory
RECENT_BYTES = 1 << 20  # … and their total bytes; the newest one is always kept
FIRST, LONGEST = 0.05, 2.0  # seconds before following again after a failure, doubled each time
LARGE = 64 << 10  # bytes; a larger queued message is not kept, but read again when it is taken up
CAUSES = 16  # failed runs whose exceptions are kept
POLL = 0.25  # seconds between two reads of drafts that another process writes


class Live:
    """The live view of one log. Call `open` before use. `state` includes the newest event that
    has arrived in this process."""

    def __init__(self, store: Store, key: Key) -> None:
        self.store, self.key = store, key
        self.log = ""
        self.row: Row | None = None  # the row at the time the log was opened
        self.state = State()
        self.history = History()
        self.stage = LiveDisplay()
        self.in_flight = MessagesInFlight()
        self.snapshots = Snapshots()
        self.failure: HoldfastError | None = None
        self.stuck: HoldfastError | None = None
        self.posting: dict[asyncio.Future[None], None] = {}  # messages being written to the log
        self.starting: asyncio.Future[None] | None = None  # set while a message starts its run
        self.senders = (
            0  # messages that are starting their runs, or wait for another message to do so
        )
        self.hooked = 0  # the last event for which this process called the agent's hooks
        self.driven = False  # by this process: deltas then come from the driver, not from drafts
        self.failures: dict[str, BaseException] = {}  # exceptions of runs that failed here
        self.watchers: list[Callable[[Event], None]] = []
        self.endings: list[
            Callable[[HoldfastError], None]
        ] = []  # called when the log is closed or deleted
        self._recent = Recent()
        self._waiting: dict[int, Event] = {}  # queued messages
        self._waiters = Waiters()
        self._reader: asyncio.Task[None] | None = None
        self._polling = Debounced(POLL, self._poll)
        self.subscribers = Subscribers(self._polling.ask)

    async def open(self) -> None:
        """Read the existing events of the log, then follow it in a task."""
        row = await self.store.row(self.key)
        if row is None:
            raise SessionNotFound(
                tenant=self.key.tenant, session=self.key.session, thread=self.key.thread
            )
        self.log, self.row = row.log, row
        loaded = await LogLoader(self.store, self.key, self.log).load()
        self.state, self.history = loaded.state, loaded.history
        self.snapshots.note(loaded.saved)
        self.stage.begin(loaded.state, loaded.shown)
        self._reader = asyncio.create_task(self._follow(), name=f"follow {self.key.session}")

    async def aclose(self) -> None:
        """Stop following the log, end all subscriptions, and raise an error in all waiting
        coroutines."""
        await self._polling.end(cut=True)
        if self._reader is not None:
            await ended(self._reader)
        self._reader = None
        self._fail(self.failure or HarnessClosed(what=f"session {self.key.session!r}"))

    # Waiting and listening

    async def reach(self, head: int) -> State:
        """Wait until event `head` has arrived in this process, and return the state."""
        if self.state.head < head:
            await self.until(lambda: self.state.head >= head)
        return self.state

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until `true()` returns True; it is called after each event."""
        if true():
            return
        if self.failure is not None:
            raise self.failure
        await self._waiters.until(true)

    @contextlib.contextmanager
    def posts(self) -> Iterator[None]:
        """Context manager for the time during which a message is written to the log."""
        done = asyncio.get_running_loop().create_future()
        self.posting[done] = None
        try:
            yield
        finally:
            del self.posting[done]
            done.set_result(None)

    async def posted(self) -> None:
        """Wait until the messages that are being written are in the log, or have failed."""
        if self.posting:
            await asyncio.wait([*self.posting])

    def listen(self, after: int | None = None, *, whole: bool = True) -> Listener:
        """Return a listener for the events after `after` (default: from now on). Without `whole`,
        events with large data are stubs (`subscribers.is_stub`)."""
        place = self.state.head if after is None else after
        listener = Listener(self, place, after is None, whole=whole)
        self.subscribers.join(listener)
        if self.failure is not None:
            listener.end()
        return listener

    def say(self, message: str, text: str, *, thought: bool = False) -> None:
        """Publish more text of a message in flight to the subscribers."""
        if (delta := self.in_flight.say(message, text, thought=thought)) is not None:
            self.subscribers.publish(delta)

    @contextlib.contextmanager
    def driven_by(
        self, look: Callable[[Event], None], lost: Callable[[HoldfastError], None]
    ) -> Iterator[None]:
        """Context manager that marks the log as driven by this process. `look` is called with each
        event, and `lost` with the error if the log is closed or deleted."""
        self.driven = True
        self.watchers.append(look)
        self.endings.append(lost)
        try:
            yield
        finally:
            self.watchers.remove(look)
            self.endings.remove(lost)
            self.driven = False

    def trouble(self, error: HoldfastError, *, stuck: bool = False) -> None:
        """Publish an error to all listeners. With `stuck`, the log is not driven until the next
        event."""
        self.stuck = error if stuck else self.stuck
        self.subscribers.publish(Trouble(error.code, str(error)))
        self._waiters.look()

    def failed(self, run: str | None, error: BaseException | None) -> None:
        """Keep the exception of a failed run, for `Result.cause` in this process."""
        if run is not None and error is not None:
            self.failures[run] = error
        while len(self.failures) > CAUSES:
            del self.failures[next(iter(self.failures))]

    @property
    def wanted(self) -> bool:
        """Whether the log has listeners, waiting coroutines, or messages that are being written."""
        return bool(self.subscribers) or bool(self._waiters) or bool(self.posting)

    # Lookup

    async def event(self, seq: int, *, whole: bool = True) -> Event | None:
        """Return the event with this number. Without `whole`, an event with large data may be a
        stub (`subscribers.is_stub`)."""
        if (event := self._recent.event(seq)) is not None:
            return event
        return await LogLoader(self.store, self.key, self.log).event(seq, inline=whole)

    async def payload(self, seq: int, type: type[P]) -> P | None:
        """Return the payload of an event, or None if it does not exist or cannot be read."""
        return payload_of(await self.event(seq), type)

    async def taken(self, seq: int) -> ev.MessageReceived:
        """Return the queued message `seq` for the run that handles it; an empty message if it
        cannot be read."""
        event = self._waiting.get(seq) or await self.event(seq)
        return payload_of(event, ev.MessageReceived) or ev.MessageReceived()

    # Following

    async def _follow(self) -> None:
        backoff = Backoff(FIRST, LONGEST)
        while True:
            try:
                with cancellable():
                    follow = self.store.follow(self.key, after=self.state.head, log=self.log)
                    async for item in follow:
                        if isinstance(item, Event):
                            if item.kind == REWOUND:
                                self.history = await self._rewound(item)
                            self._arrived(item)
                            backoff.reset()
            except (SessionNotFound, LogReplaced, LogDamaged) as error:
                self._fail(error)
                return
            except Exception as error:  # log and retry: waiters must not hang
                if not isinstance(error, HoldfastError):
                    problem = f"new events of the log cannot be read ({type(error).__name__})"
                    failed, error = error, StoreUnavailable(problem=problem)
                    error.__cause__ = failed
                self.trouble(error)
                await backoff.wait()

    async def _rewound(self, event: Event) -> History:
        """Return the messages that a model reads after a rewind."""
        return await LogLoader(self.store, self.key, self.log).history(fold((event,), self.state))

    def _arrived(self, event: Event) -> None:
        self.state = fold((event,), self.state)
        self._recent.add(event)
        self._keep_waiting(event)
        self.history.add(event)
        self.in_flight.arrived(event)
        self.stage.put(event, self.state)
        self.subscribers.publish(event)
        self.stuck = None
        for look in self.watchers:
            look(event)
        self._waiters.look()

    def _keep_waiting(self, event: Event) -> None:
        """Keep queued messages in memory for as long as they are queued."""
        queue = self.state.queue
        if not queue:
            self._waiting.clear()
        elif event.kind == "message.received" and len(event.data) <= LARGE:
            self._waiting[event.seq] = event
        if len(self._waiting) > len(queue):
            known = self._waiting
            self._waiting = {q.seq: known[q.seq] for q in queue if q.seq in known}

    def _fail(self, error: HoldfastError) -> None:
        self.failure = error
        for tell in [*self.endings]:
            tell(error)
        self._waiters.fail(error)
        self.subscribers.end()

    async def _poll(self) -> None:
        """Publish drafts of a driver in another process as deltas, while the log has listeners and
        an active run."""
        if not self.subscribers:
            return
        if not self.driven and self.state.active is not None:
            head = self.state.head
            with contextlib.suppress(HoldfastError):
                drafts = await self.store.drafts(self.key)
                # New events may have completed these messages: then wait for the next poll.
                for draft in drafts if self.state.head == head and not self.driven else ():
                    so_far = self.in_flight.flying.get(draft.message)
                    if more := draft.text[so_far.length if so_far is not None else 0 :]:
                        self.say(draft.message, more)
        self._polling.ask()


class Recent:
    """The newest events of an open log, kept in memory: consecutive, and bounded in number and
    bytes."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._size = 0

    def add(self, event: Event) -> None:
        self._events.append(event)
        self._size += item_size(event)
        while len(self._events) > RECENT or (self._size > RECENT_BYTES and len(self._events) > 1):
            self._size -= item_size(self._events.popleft())

    def event(self, seq: int) -> Event | None:
        place = seq - self._events[0].seq if self._events else -1
        return self._events[place] if 0 <= place < len(self._events) else None


class Waiters:
    """Coroutines that wait until a condition on the log is true."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}  # in order

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def until(self, true: Callable[[], bool]) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = true
        try:
            await waiter
        finally:
            del self._waiting[waiter]

    def look(self) -> None:
        """Check all conditions, and resume the coroutines whose condition is true."""
        for future, true in self._waiting.items():
            if not future.done() and true():
                future.set_result(None)

    def fail(self, error: HoldfastError) -> None:
        """Raise `error` in all waiting coroutines."""
        for future in self._waiting:
            if not future.done():
                future.set_exception(error)
