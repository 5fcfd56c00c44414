"""Long logs in bounded pieces: reads in pages, restores in batches. Shared by all databases."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import Protocol, TypeVar

from ..errors import LogDamaged
from ..log.codec import check_stored
from ..log.events import Event, Key
from .frames import damaged

PAGE_EVENTS = 512
BATCH_EVENTS = 1_000
BATCH_BYTES = 4 << 20

# The incarnation that was read, its events, and what stopped the read, if anything.
Page = tuple[str, list[Event], LogDamaged | None]
Fetch = Callable[..., Awaitable[Page]]


class Numbered(Protocol):
    """An event, or a record that becomes one."""

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
    """The part of a page (after < seq <= upto) that has no gap, and what stopped it: the first gap,
    or the `damage` after the events found. A page without events has a gap at its first number."""
    wanted = range(upto, after, -1) if reverse else range(after + 1, upto + 1)
    seqs = [event.seq for event in found] + ([] if damage is None else [damage.seq])
    for place, seq in enumerate(wanted[: max(len(seqs), 1)]):
        if place == len(seqs) or seqs[place] != seq:
            return found[:place], damaged(key, seq, "is missing")
    return found, damage


async def read_in_pages(
    fetch: Fetch,
    key: Key,
    *,
    after: int,
    before: int | None,
    limit: int | None,
    reverse: bool,
    log: str | None,
    inline: bool,
) -> AsyncGenerator[Event, None]:
    """The port's `read`, page by page, all of one incarnation. A page may be short; only an empty
    page is the last."""
    while True:
        log, page, damage = await fetch(
            key,
            after=after,
            before=before,
            limit=PAGE_EVENTS if limit is None else min(limit, PAGE_EVENTS),
            reverse=reverse,
            log=log,
            inline=inline,
        )
        for event in page:
            yield event
        if damage is not None:
            raise damage
        if limit is not None:
            limit -= len(page)
        if not page or limit == 0:
            return
        if reverse:
            before = page[-1].seq
        else:
            after = page[-1].seq


async def batches(events: AsyncIterable[Event]) -> AsyncGenerator[list[Event], None]:
    """Events of another log, each checked, in batches that fit into one transaction."""
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
