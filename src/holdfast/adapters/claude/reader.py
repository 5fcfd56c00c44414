"""Reads the entries and the summaries of transcripts."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from ...bundle.claude.entries import decode, is_entry
from ...errors import LogDamaged, SessionNotFound
from ...log.catalog import Query, Row
from ...log.conversation import conversation
from ...log.events import Event, Key
from ...stores.pages import every_row
from ...stores.port import Store
from .summaries import Data, SummaryFold, TranscriptSummary, apart_data, from_row, note_in

log = logging.getLogger("holdfast.adapters.claude")


async def read_events(
    store: Store, at: Key, *, after: int = 0, log_id: str | None = None, inline: bool = True
) -> AsyncGenerator[Event, None]:
    """Yield the events of a log. Events that cannot be read are logged and skipped."""
    while True:
        try:
            events = store.read(at, after=after, log=log_id, inline=inline)
            async with aclosing(events):
                async for event in events:
                    yield event
                    after = event.seq
            return
        except LogDamaged as damage:
            log.warning("skipped a damaged entry: %s; run `holdfast verify` for a list", damage)
            after = damage.seq


async def entries_of(store: Store, at: Key) -> list[Any] | None:
    """Return the entries of a transcript, except entries that a rewind removed. Returns None if it
    has no entries or does not exist."""
    try:
        async with aclosing(read_events(store, at)) as events:
            kept = conversation([event async for event in events])
            return [decode(event) for event in kept if is_entry(event)] or None
    except SessionNotFound:
        return None


async def count_of(store: Store, at: Key) -> int:
    """Return the number of entries of a transcript."""
    try:
        async with aclosing(read_events(store, at, inline=False)) as events:
            return sum([is_entry(event) async for event in events])
    except SessionNotFound:
        return 0


async def summary_of(store: Store, at: Key) -> TranscriptSummary:
    """Return the summary of a main transcript, even if its row is missing or outdated."""
    row = await store.row(at)
    return TranscriptSummary() if row is None else await whole_summary(store, row)


async def whole_summary(store: Store, row: Row) -> TranscriptSummary:
    """Return the summary of a row, including its data. Computes it from the log if necessary."""
    summary = from_row(row)
    if summary is None:
        return await _folded(store, row)
    if summary.data is None:
        return await _with_apart_data(store, row, summary)
    return summary


async def listed_summary(store: Store, row: Row) -> TranscriptSummary:
    """Return the summary of a row like `whole_summary`, but without data if the row does not
    contain the data."""
    return from_row(row) or await _folded(store, row)


async def _folded(store: Store, row: Row) -> TranscriptSummary:
    """Compute a summary from the log. Starts at its last or second to last note if that is valid,
    otherwise at the beginning."""
    note = note_in(row)
    if note is not None:
        start = (note.at if note.at < row.head else note.base) - 2
        fold = SummaryFold(complete=False)
        await _fold(store, row, fold, after=max(0, start))
        if fold.complete:
            return fold.summary(row.log, row.head)
    fold = SummaryFold(complete=True)
    await _fold(store, row, fold, after=0)
    return fold.summary(row.log, row.head)


async def _fold(store: Store, row: Row, fold: SummaryFold, *, after: int) -> None:
    async with aclosing(read_events(store, row.key, after=after, log_id=row.log)) as events:
        async for event in events:
            if event.seq > row.head:
                break
            fold.take(event)


async def _with_apart_data(store: Store, row: Row, summary: TranscriptSummary) -> TranscriptSummary:
    data: Data | None = None
    events = store.read(row.key, after=row.head - 2, before=row.head, log=row.log)
    async with aclosing(events):
        async for event in events:
            data = apart_data(event)
    return replace(summary, data=data)


async def all_rows(store: Store, query: Query) -> list[Row]:
    """Return every row that matches a query. A row that changes during the query is returned only
    once, in its latest state."""
    found = {row.log: row async for row in every_row(store, query)}
    return list(found.values())
