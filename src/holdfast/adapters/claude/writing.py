"""Appends to transcripts, each stored once, whoever else writes.

A main transcript's entries and its summary go in one append, guarded by the head that the summary
was made for. When another writer was first, the row is read and the batch made again, with the
same ids for the entries; so it is when the backend gave no answer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from ...errors import HeadMoved, HoldfastError, InvalidValue
from ...log.codec import LARGEST
from ...log.events import Key, NewEvent
from ...stores.port import Store
from .entries import KINDS, NEW, appends, decode, to_event, unique
from .keys import MAIN
from .reading import persist, summary_of
from .summaries import Summary, noted

UNSURE = 1_000  # logs of which a batch that failed is remembered
AGENT = "claude"  # of the sessions
CREATED = "claude:session"  # the id of the event that begins a session


class Writer:
    """The appends of one adapter. It knows which batch failed last in each log, so that the
    caller's own repetition keeps the ids of the entries that have no uuid."""

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._unsure: dict[Key, tuple[bytes, list[str]]] = {}

    async def append(
        self, store: Store, at: Key, project: str, entries: Sequence[tuple[Any, str | None]]
    ) -> int:
        """Add entries under their ids (None: that of the uuid, or a new one) in order of the
        calls, as far as the ids are not known; returns how many were new."""
        turn = self._turns.setdefault(at, asyncio.Lock())
        async with turn:
            events, again = self._events(at, entries)
            try:
                return await self._write(store, at, project, events, again)
            except BaseException:
                self._remember(at, events)
                raise

    def _events(
        self, at: Key, entries: Sequence[tuple[Any, str | None]]
    ) -> tuple[list[NewEvent], bool]:
        """The events of a batch, and whether it is the one that failed last."""
        events = unique([to_event(entry, id) for entry, id in entries])
        content, ids = self._unsure.pop(at, (b"", []))
        if not ids or content != _content(events):
            return events, False
        known = zip(events, ids, strict=True)
        return [NewEvent(kind=event.kind, data=event.data, id=id) for event, id in known], True

    def _remember(self, at: Key, events: list[NewEvent]) -> None:
        while len(self._unsure) >= UNSURE:
            del self._unsure[next(iter(self._unsure))]
        self._unsure[at] = _content(events), [event.id for event in events]

    async def _write(
        self, store: Store, at: Key, project: str, events: list[NewEvent], again: bool
    ) -> int:
        write = _write_main if at.thread == MAIN else _write_sub
        added = 0
        for piece in appends(events):

            async def attempt(repeated: bool, piece: list[NewEvent] = piece) -> int:
                return await write(store, at, project, piece, again or repeated)

            added += await persist(attempt)
        return added


async def _write_sub(
    store: Store, at: Key, project: str, events: list[NewEvent], again: bool
) -> int:
    done = await store.append(at, events, create=True)
    if done.seqs[0] == 1 or again:
        # So that the session is found though its main transcript comes later, or never.
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
        # What others keep there leaves no room for ours.
        return await _extend(store, at, before, events, inline=False)


def _may_be_known(events: list[NewEvent]) -> bool:
    return not all(event.id.startswith(NEW) for event in events)


async def _all_known(store: Store, at: Key, log: str, events: list[NewEvent]) -> bool:
    """Whether an append of these would change nothing: a store asks for the head last."""
    try:
        await store.append(at, events, expected=LARGEST, log=log)
    except HeadMoved:
        return False
    return True


async def _extend(
    store: Store, at: Key, before: Summary, events: list[NewEvent], *, inline: bool = True
) -> int:
    """Append events and their note to the log as it was `before`."""
    inline = inline and not store.info().encrypted  # what a row has for lists is in clear
    note = noted(before, len(events), _entries(events), inline=inline)
    done = await store.append(
        at, [*events, *note], expected=before.head, log=before.log, create=before.log is None
    )
    fresh = [event for event, seq in zip(events, done.seqs, strict=False) if seq > before.head]
    if len(fresh) < len(events):
        # Some were known, and the note took them for new. It shows by its number; this one
        # only spares readers the walk through the log.
        now = Summary(log=before.log, head=done.head, mtime=before.mtime, data=before.data)
        with suppress(HoldfastError):
            right = noted(now, 0, _entries(fresh), inline=inline)
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
