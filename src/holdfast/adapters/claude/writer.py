"""Appends entries to transcripts. Each entry is stored once, even with concurrent writers and
retries.

The entries of a main transcript and its summary are one append, which succeeds only if the log has
not grown since the summary was computed. If another writer was faster or the store did not respond,
the row is read again and the append is retried, with the same ids for the entries.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from ...bundle.claude.entries import KINDS, decode
from ...errors import HeadMoved, HoldfastError, InvalidValue
from ...log.codec import LARGEST
from ...log.events import Key, NewEvent
from ...stores.port import Store
from ..retries import persist
from .batches import NEW, split, to_event, unique
from .keys import MAIN
from .reader import summary_of
from .summaries import TranscriptSummary, note_events

FAILED = 1_000  # logs whose last failed batch is remembered
AGENT = "claude"  # agent name of the sessions
CREATED = "claude:session"  # the id of a session's first event


class TranscriptWriter:
    """Appends entries for one adapter. It remembers the last failed batch of each log, so that a
    retry by the caller uses the same ids for entries without a uuid."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._failed: dict[Key, tuple[bytes, list[str]]] = {}

    async def append(
        self, store: Store, at: Key, project: str, entries: Sequence[tuple[Any, str | None]]
    ) -> int:
        """Append the entries whose ids are not stored yet, in order. If an id is None, it is
        derived from the entry's uuid, or generated. Returns the number of new entries."""
        lock = self._locks.setdefault(at, asyncio.Lock())
        async with lock:
            events, again = self._events(at, entries)
            try:
                return await self._write(store, at, project, events, again)
            except BaseException:
                self._remember(at, events)
                raise

    def _events(
        self, at: Key, entries: Sequence[tuple[Any, str | None]]
    ) -> tuple[list[NewEvent], bool]:
        """Return the events of a batch, and whether the batch has the same content as the last
        failed batch."""
        events = unique([to_event(entry, id) for entry, id in entries])
        content, ids = self._failed.pop(at, (b"", []))
        if not ids or content != _content(events):
            return events, False
        return [replace(event, id=id) for event, id in zip(events, ids, strict=True)], True

    def _remember(self, at: Key, events: list[NewEvent]) -> None:
        while len(self._failed) >= FAILED:
            del self._failed[next(iter(self._failed))]
        self._failed[at] = _content(events), [event.id for event in events]

    async def _write(
        self, store: Store, at: Key, project: str, events: list[NewEvent], again: bool
    ) -> int:
        write = _write_main if at.thread == MAIN else _write_sub
        added = 0
        for batch in split(events):

            async def attempt(repeated: bool, batch: list[NewEvent] = batch) -> int:
                return await write(store, at, project, batch, again or repeated)

            added += await persist(attempt)
        return added


async def _write_sub(
    store: Store, at: Key, project: str, events: list[NewEvent], again: bool
) -> int:
    done = await store.append(at, events, create=True)
    if done.seqs[0] == 1 or again:
        # The session is found even if its main transcript comes later or never.
        await store.append(Key(at.tenant, at.session, MAIN), [_created(project)], create=True)
    return done.fresh


async def _write_main(
    store: Store, at: Key, project: str, events: list[NewEvent], again: bool
) -> int:
    before = await summary_of(store, at)
    if before.log is None:
        events = [_created(project), *events]
    elif (again or _may_be_known(events)) and await _all_known(store, at, before.log, events):
        return 0
    try:
        return await _extend(store, at, before, events)
    except InvalidValue as error:
        if error.field != "metadata":
            raise
        # The row has no room for the summary, because of other metadata.
        return await _extend(store, at, before, events, inline=False)


def _may_be_known(events: list[NewEvent]) -> bool:
    return not all(event.id.startswith(NEW) for event in events)


async def _all_known(store: Store, at: Key, log: str, events: list[NewEvent]) -> bool:
    """Return whether all of these events are already stored. Appends with an `expected` head that
    no log can have: stores skip known ids before they check the head."""
    try:
        await store.append(at, events, expected=LARGEST, log=log)
    except HeadMoved:
        return False
    return True


async def _extend(
    store: Store,
    at: Key,
    before: TranscriptSummary,
    events: list[NewEvent],
    *,
    inline: bool = True,
) -> int:
    """Append events and their note to a log. `before` is the log's current summary."""
    inline = inline and not store.info().encrypted  # rows are not encrypted
    note = note_events(before, len(events), _entries(events), inline=inline)
    done = await store.append(
        at, [*events, *note], expected=before.head, log=before.log, create=before.log is None
    )
    fresh = [event for event, seq in zip(events, done.seqs, strict=False) if seq > before.head]
    if len(fresh) < len(events):
        # Some entries were already stored, so the note has a wrong number. A new note is optional:
        # without it, readers compute the summary from the log.
        now = replace(before, head=done.head)
        with suppress(HoldfastError):
            right = note_events(now, 0, _entries(fresh), inline=inline)
            await store.append(at, right, expected=done.head, log=before.log)
    return len(_entries(fresh))


def _entries(events: list[NewEvent]) -> list[Any]:
    return [decode(event) for event in events if event.kind in KINDS]


def _created(project: str) -> NewEvent:
    payload = {"agent": AGENT, "workspace": project}
    return NewEvent.of("session.created", payload, id=CREATED)


def _content(events: list[NewEvent]) -> bytes:
    digest = hashlib.sha256()
    for event in events:
        digest.update(event.data)
        digest.update(b"\n")
    return digest.digest()
