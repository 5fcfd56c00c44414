"""Splits reads into pages, and restores into batches, to limit memory use and transaction size."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ..errors import LogDamaged
from ..log.codec import check_stored
from ..log.events import Event, Key
from .frames import damaged

PAGE_EVENTS = 512
BATCH_EVENTS = 1_000
BATCH_BYTES = 4 << 20


class ReadBounds(NamedTuple):
    """The range and options of a read: events with after < seq < before of the incarnation
    `log`."""

    after: int
    before: int | None
    limit: int | None
    reverse: bool
    log: str | None
    inline: bool

    @property
    def page(self) -> int:
        """The maximum number of events on the next page."""
        return PAGE_EVENTS if self.limit is None else min(self.limit, PAGE_EVENTS)

    def upto(self, head: int) -> int:
        """Return the last number to read of a log that ends at `head`."""
        return head if self.before is None else min(self.before - 1, head)

    def behind(self, log: str, events: Sequence[Event]) -> ReadBounds:
        """Return the bounds for the rest of the read, after these events were read."""
        limit = None if self.limit is None else self.limit - len(events)
        after, before = self.after, self.before
        if self.reverse:
            before = events[-1].seq
        else:
            after = events[-1].seq
        return ReadBounds(after, before, limit, self.reverse, log, self.inline)

    @property
    def empty(self) -> bool:
        return self.limit == 0 or (self.reverse and self.before == self.after + 1)


# The incarnation that was read, its events, and the error that ended the read, if any.
Page = tuple[str, list[Event], LogDamaged | None]
Fetch = Callable[[Key, ReadBounds], Awaitable[Page]]


class Numbered(Protocol):
    """An object with an event number: an event, or a stored record of an event."""

    @property
    def seq(self) -> int: ...


N = TypeVar("N", bound=Numbered)


def dense(
    key: Key,
    after: int,
    upto: int,
    found: list[N],
    damage: LogDamaged | None = None,
    *,
    reverse: bool,
) -> tuple[list[N], LogDamaged | None]:
    """Check that the event numbers of a page (after < seq <= upto) have no gap. Returns the events
    before the first gap, and the error for the gap; without a gap, all events and `damage`, the
    error for the event after them, if any. If a page has no events, its first number is reported as
    missing."""
    wanted = range(upto, after, -1) if reverse else range(after + 1, upto + 1)
    seqs = [event.seq for event in found] + ([] if damage is None else [damage.seq])
    due = wanted[: max(len(seqs), 1)]
    if seqs == list(due):
        return found, damage
    for place, seq in enumerate(due):
        if place == len(seqs) or seqs[place] != seq:
            return found[:place], damaged(key, seq, "is missing")
    return found, damage


async def read_in_pages(fetch: Fetch, key: Key, bounds: ReadBounds) -> AsyncGenerator[Event, None]:
    """Implement `Store.read`: yield the events of one incarnation, page by page. A page may be
    short; only an empty page marks the end."""
    while True:
        log, events, damage = await fetch(key, bounds)
        for event in events:
            yield event
        if damage is not None:
            raise damage
        if not events:
            return
        bounds = bounds.behind(log, events)
        if bounds.empty:
            return


async def batches(events: AsyncIterable[Event]) -> AsyncGenerator[list[Event], None]:
    """Validate the events of a restore, and yield them in batches that fit into one transaction."""
    some: list[Event] = []
    size = 0
    async for event in events:
        check_stored(event)
        some.append(event)
        size += len(event.data)
        if size >= BATCH_BYTES or len(some) == BATCH_EVENTS:
            yield some
            some, size = [], 0
    if some:
        yield some
