"""Writes of adapters to the log of a session: appends, rewinds and erasures.

If the store did not respond, a write is repeated with the same event ids, so that it takes effect
once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from ..errors import HeadMoved, SessionBusy, SessionNotFound
from ..log.catalog import Row
from ..log.codec import LIMITS
from ..log.events import ADAPTER_NAMESPACES, Event, Key, NewEvent
from ..sessions.rewind import rewound
from ..stores.port import Store
from .retries import persist

T = TypeVar("T")

SPARE_BYTES = 1 << 20  # room in an append for the events that are added to a batch
ERASED_AT_ONCE = 1_000
ERASED = "the session was cleared"
CONTENT = ADAPTER_NAMESPACES | {
    *("compaction", "context", "message", "model", "pending", "progress", "queue", "task", "tool"),
    "state",
}

Change = tuple[Row, int, list[NewEvent], T]


async def append(store: Store, at: Key, events: Sequence[NewEvent], *, agent: str) -> None:
    """Append events. Creates the session with this agent if it does not exist."""
    for batch in batches(events):
        await persist(lambda _, batch=batch: _append(store, at, batch, agent))  # type: ignore[misc]


async def _append(store: Store, at: Key, events: list[NewEvent], agent: str) -> None:
    try:
        await store.append(at, events)
    except SessionNotFound:
        await store.append(at, [created(agent), *events], create=True)


def created(agent: str, **fields: Any) -> NewEvent:
    """Return the first event of a session that an adapter creates. Its id is the same for all
    writers, so that only one of them creates the session."""
    return NewEvent.of("session.created", {"agent": agent, **fields}, id=f"{agent}:session")


def batches(events: Sequence[NewEvent]) -> Iterator[list[NewEvent]]:
    """Yield the events in batches that a store accepts in one append. Usually one is enough."""
    batch: list[NewEvent] = []
    size = 0
    for event in events:
        full = len(batch) >= LIMITS.append_events - 2
        if batch and (full or size + len(event.data) > LIMITS.append_bytes - SPARE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(event.data)
    if batch:
        yield batch


async def rewind(store: Store, plan: Callable[[], Awaitable[Change[T] | None]], otherwise: T) -> T:
    """Rewind a log according to `plan`, which returns the row that it read, the last event to keep,
    the events to append after the rewind, and the result. If `plan` returns None, nothing changes
    and `otherwise` is returned. If another writer appended first, `plan` is called again. Raises
    `SessionBusy` while a run or a pending item is open."""
    sent: tuple[Row, list[NewEvent], T] | None = None

    async def attempt(repeated: bool) -> T:
        nonlocal sent
        if sent is not None:  # the reply was lost: the rewind may be in the log
            row, events, result = sent
            sent = None
        else:
            change = await plan()
            if change is None:
                return otherwise
            row, to, after, result = change
            events = [await rewind_event(store, row, to), *after]
        try:
            await store.append(row.key, events, expected=row.head, log=row.log)
        except HeadMoved:
            raise
        except Exception:
            sent = row, events, result
            raise
        return result

    return await persist(attempt)


async def rewind_event(store: Store, row: Row, to: int) -> NewEvent:
    """Return the event that rewinds a log to event `to`. Raises `SessionBusy` while a run or a
    pending item is open."""
    if row.run in ("running", "waiting") or row.pending:
        raise SessionBusy(
            session=row.session,
            run=None,
            since=None,
            remedy="end its run or settle its pending items first",
        )
    due = None if row.run is None else row.due
    return NewEvent.of("thread.rewound", await rewound(store, row, to, due=due))


async def erase(store: Store, at: Key) -> None:
    """Erase the content of every event of a log, including events removed by a rewind. Events about
    the session itself are kept: its creation, title, labels and metadata. Rewind events are kept
    too: they contain no message, and without them the conversation would not be cleared."""
    row = await store.row(at)
    if row is None:
        return
    seqs: list[int] = []
    events = store.read(at, before=row.head, log=row.log, inline=False)
    async with aclosing(events):
        async for event in events:
            if has_content(event):
                seqs.append(event.seq)
    for start in range(0, len(seqs), ERASED_AT_ONCE):
        part = seqs[start : start + ERASED_AT_ONCE]
        await persist(lambda _, part=part: store.erase(at, part, reason=ERASED))  # type: ignore[misc]


def has_content(event: Event) -> bool:
    """Return whether an event belongs to the conversation, rather than describing the session."""
    return event.kind.partition(".")[0] in CONTENT


class FailedBatch:
    """Remembers the last batch whose append failed. It may be in the log nevertheless, so it is
    sent again with the same event ids."""

    def __init__(self) -> None:
        self._last: tuple[bytes, list[NewEvent]] | None = None

    def forget(self) -> None:
        self._last = None

    def remember(self, events: list[NewEvent]) -> None:
        self._last = _digest(events), events

    def same(self, events: list[NewEvent]) -> list[NewEvent]:
        """Return the events of the failed batch if `events` has the same content; otherwise return
        `events`."""
        last, self._last = self._last, None
        return events if last is None or last[0] != _digest(events) else last[1]


def _digest(events: list[NewEvent]) -> bytes:
    digest = hashlib.sha256()
    for event in events:
        digest.update(b"%s\n%s\n" % (event.kind.encode(), bytes(event.data)))
    return digest.digest()
