"""Reads of transcripts and their rows, and the patience with which the adapter asks a store."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from ...errors import HeadMoved, LogDamaged, LogReplaced, SessionNotFound, StoreUnavailable
from ...log.catalog import Query, Row
from ...log.codec import LIMITS
from ...log.events import Event, Key
from ...stores.port import Store
from .entries import decode, is_entry
from .summaries import Data, Summary, Walk, apart_data, from_row, note_in

T = TypeVar("T")

log = logging.getLogger("holdfast.adapters.claude")

ATTEMPTS = 3  # at a call that the backend does not answer
PAUSE = 0.1  # seconds before the second, doubled before each further one
CROWD = 0.02  # seconds at most to wait when another writer was first


async def persist(attempt: Callable[[bool], Awaitable[T]]) -> T:
    """Attempt something until it is done, told whether it is repeated: as often as other
    writers are first, and a few times when the backend does not answer."""
    failures = 0
    for number in itertools.count():
        try:
            return await attempt(number > 0)
        except (HeadMoved, LogReplaced, SessionNotFound):
            pause = random.uniform(0, CROWD)  # noqa: S311 - so that writers part
        except StoreUnavailable:
            failures += 1
            if failures == ATTEMPTS:
                raise
            pause = PAUSE * 2 ** (failures - 1)
        await asyncio.sleep(pause)
    raise AssertionError("unreachable")


async def read_events(
    store: Store, at: Key, *, after: int = 0, log_id: str | None = None, inline: bool = True
) -> AsyncGenerator[Event, None]:
    """The events of a log without those that cannot be read, each of which is logged."""
    while True:
        try:
            events = store.read(at, after=after, log=log_id, inline=inline)
            async with aclosing(events):
                async for event in events:
                    yield event
                    after = event.seq
            return
        except LogDamaged as damage:
            log.warning("an entry is passed over: %s; `holdfast verify` lists all damage", damage)
            after = damage.seq


async def entries_of(store: Store, at: Key) -> list[Any] | None:
    """The entries of a transcript, None when there is none."""
    try:
        async with aclosing(read_events(store, at)) as events:
            return [decode(event) async for event in events if is_entry(event)] or None
    except SessionNotFound:
        return None


async def count_of(store: Store, at: Key) -> int:
    """How many entries a transcript has."""
    try:
        async with aclosing(read_events(store, at, inline=False)) as events:
            return sum([is_entry(event) async for event in events])
    except SessionNotFound:
        return 0


async def summary_of(store: Store, at: Key) -> Summary:
    """What is known of a main transcript, in whatever state its row is."""
    row = await store.row(at)
    if row is None:
        return Summary()
    return await whole_summary(store, row)


async def whole_summary(store: Store, row: Row) -> Summary:
    """The summary of a row, with its data, from the log if need be."""
    summary = from_row(row)
    if summary is None:
        return await _walked(store, row)
    if summary.data is None:
        return await _with_apart_data(store, row, summary)
    return summary


async def listed_summary(store: Store, row: Row) -> Summary:
    """The same without the data, where these are not in the row."""
    return from_row(row) or await _walked(store, row)


async def _walked(store: Store, row: Row) -> Summary:
    """A summary from the log: from its last note, or from the one before that, if there is one
    that is right; else from the beginning."""
    note = note_in(row)
    if note is not None:
        start = (note.at if note.at < row.head else note.base) - 2
        walk = Walk(sure=False)
        await _walk(store, row, walk, after=max(0, start))
        if walk.sure:
            return walk.summary(row.log, row.head)
    walk = Walk(sure=True)
    await _walk(store, row, walk, after=0)
    return walk.summary(row.log, row.head)


async def _walk(store: Store, row: Row, walk: Walk, *, after: int) -> None:
    async with aclosing(read_events(store, row.key, after=after, log_id=row.log)) as events:
        async for event in events:
            if event.seq > row.head:
                break
            walk.take(event)


async def _with_apart_data(store: Store, row: Row, summary: Summary) -> Summary:
    data: Data | None = None
    events = store.read(row.key, after=row.head - 2, before=row.head, log=row.log)
    async with aclosing(events):
        async for event in events:
            data = apart_data(event)
    return Summary(log=row.log, head=row.head, mtime=summary.mtime, data=data)


async def all_rows(store: Store, query: Query) -> list[Row]:
    """Every row that answers a query, however many, as it was when last met."""
    found: dict[str, Row] = {}
    cursor: str | None = None
    while True:
        page = await store.find(query, cursor=cursor, limit=LIMITS.page)
        found.update((row.log, row) for row in page.items)
        cursor = page.cursor
        if cursor is None:
            return list(found.values())
