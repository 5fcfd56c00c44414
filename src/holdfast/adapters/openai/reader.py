"""Reads the items of a conversation: all, or only the newest from the end of the log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from ...errors import SessionNotFound
from ...log.catalog import Row
from ...log.conversation import conversation
from ...log.events import Event, Key
from ...stores.port import Store
from .. import foreign
from ..foreign import ForeignEvents, OpenOutcomes, outcome_text
from ..reading import read_events, read_newest_first
from .items import Item, assistant_item, call_item, items_of, output_item, user_item

STATE = "openai.run_state"


class EventItems(Struct, frozen=True):
    """An event and its items. There is at least one item."""

    event: Event
    items: list[Item]


class Tail(Struct, frozen=True):
    """The newest entries of a log up to the head of its row, oldest first. `complete` is true if
    the log has no other entries."""

    row: Row
    entries: list[EventItems]
    complete: bool

    @property
    def items(self) -> list[Item]:
        return [item for entry in self.entries for item in entry.items]


async def all_items(store: Store, at: Key) -> list[Item]:
    """Return the items of a conversation, oldest first; empty if the session does not exist."""
    try:
        async with aclosing(read_events(store, at)) as events:
            kept = conversation([event async for event in events])
    except SessionNotFound:
        return []
    return [item for entry in entries_of(kept) for item in entry.items]


async def last_items(store: Store, at: Key, limit: int) -> list[Item]:
    """Return the newest `limit` items, oldest first. Reads only as much of the log as needed."""
    found = await tail(store, at, limit)
    return [] if found is None else found.items[-limit:]


async def tail(store: Store, at: Key, limit: int | None) -> Tail | None:
    """Return the newest entries that together have at least `limit` items, or all entries if
    `limit` is None. Returns None if the session does not exist."""
    row = await store.row(at)
    if row is None:
        return None
    events: list[Event] = []
    open = OpenOutcomes()
    count = 0
    async with aclosing(read_newest_first(store, row)) as back:
        async for event in back:
            events.append(event)
            own = items_of(event)
            if own is None:
                open.take(event)
            count += event.kind in foreign.KINDS if own is None else len(own)
            if limit is None or count < limit or open:
                continue
            entries = entries_of(events[::-1])
            count = sum(len(entry.items) for entry in entries)
            if count >= limit:
                return Tail(row, entries, complete=False)
    return Tail(row, entries_of(events[::-1]), complete=True)


async def saved_state(store: Store, at: Key) -> Any:
    """Return the run state that was saved last. Returns None if there is none, or if it was cleared
    or a message of the user follows it."""
    row = await store.row(at)
    if row is None:
        return None
    async with aclosing(read_newest_first(store, row)) as back:
        async for event in back:
            if event.kind == STATE:
                return event.json().get("state")
            if event.kind == "message.received":
                break
    return None


def entries_of(events: Sequence[Event]) -> list[EventItems]:
    """Return the entries of successive events. Events of other writers are translated; erased
    events and other kinds are skipped."""
    own = [(event, items_of(event)) for event in events]
    others = None
    if any(items is None and event.kind in foreign.KINDS for event, items in own):
        others = ForeignEvents(events)
    found: list[EventItems] = []
    for event, items in own:
        listed = _translated(event.seq, others) if items is None and others else items
        if listed:
            found.append(EventItems(event, listed))
    return found


def _translated(seq: int, others: ForeignEvents) -> list[Item]:
    if seq in others.outcomes:
        call, outcome = others.outcomes[seq]
        return [output_item(call.id, outcome_text(outcome))]
    message = others.messages.get(seq)
    if message is None:
        return []
    if message.role == "user":
        return [user_item(message.text)] if message.text else []
    items = [assistant_item(message.text)] if message.text else []
    return items + [call_item(call.id, call.name, call.arguments) for call in message.calls]
