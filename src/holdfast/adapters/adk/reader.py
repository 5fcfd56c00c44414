"""Reads the events of a session of ADK: all of them, or the newest ones from the end of the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from google.adk.events.event import Event as AdkEvent
from msgspec import Struct
from pydantic import ValidationError

from ...log.catalog import Row
from ...log.conversation import conversation
from ...log.events import Event
from ...log.transcript import Message
from ...stores.port import Store
from .. import foreign
from ..foreign import ForeignEvents, OpenOutcomes, outcome_text
from ..reading import read_events, read_newest_first
from . import state as states
from .items import (
    FOLLOWS,
    HEADS,
    ITEM,
    PART,
    STATE,
    TEXT,
    Fields,
    call_part,
    fields_of,
    foreign_fields,
    is_own,
    mark_of,
    output_part,
    text_part,
    with_delta,
)
from .state import Known, Scoped, StateReader, deltas_of, newest_first, read_state

log = logging.getLogger("holdfast.adapters")


class Latest(Struct, frozen=True):
    """The end of a log: its state, the time of ADK's last event in seconds, and what its last
    append changes in the state of user and app, with the id of that event."""

    known: Known
    updated: float
    scoped: Scoped | None = None


async def all_events(store: Store, row: Row) -> tuple[list[AdkEvent], Latest]:
    """Return all events of a session up to the head of its row, and the end of its log."""
    events = []
    async with aclosing(read_events(store, row.key)) as found:
        async for event in found:
            if event.seq > row.head:
                break
            events.append(event)
    reader = StateReader(Known(row.log, 0))
    for event in events:
        reader.take(event)
    updated, scoped = _end(row, reversed(events))
    known = reader.known(row.log, row.head, row.erased)
    return to_adk(conversation(events)), Latest(known, updated, scoped)


async def last_events(
    store: Store, row: Row, limit: int, since: float
) -> tuple[list[AdkEvent], Latest]:
    """Return the newest `limit` events from the time `since` on. Reads no more than it needs."""
    end = await latest(store, row)
    if limit == 0:
        return [], end
    events: list[Event] = []
    open = OpenOutcomes()
    count = 0
    async with aclosing(read_newest_first(store, row)) as back:
        async for event in back:
            events.append(event)
            if is_own(event):
                count += mark_of(event) != PART
            else:
                open.take(event)
                count += event.kind in foreign.KINDS
            if count < limit or open or (is_own(event) and mark_of(event) == PART):
                continue
            made = [each for each in to_adk(events[::-1]) if each.timestamp >= since]
            if len(made) >= limit:
                return made[-limit:], end
            count = len(made)
    made = [each for each in to_adk(events[::-1]) if each.timestamp >= since]
    return made[-limit:], end


async def latest(store: Store, row: Row) -> Latest:
    """Return the end of a log."""
    events: list[Event] = []
    async with aclosing(newest_first(store, row.key, row.log, row.head)) as back:
        async for event in back:
            events.append(event)
            if event.kind in foreign.KINDS or (is_own(event) and mark_of(event) != PART):
                break
    updated, scoped = _end(row, events)
    known = await read_state(store, row.key, row.log, row.head, row.erased)
    return Latest(known, updated, scoped)


def _end(row: Row, newest: Iterable[Event]) -> tuple[float, Scoped | None]:
    """Return the time of the last event, and the last append's changes of user and app."""
    scoped = None
    for event in newest:
        if event.kind == states.KIND:
            data = states.data_of(event)
            deltas = deltas_of(event, None)
            if scoped is None and deltas.scopes:
                scoped = event.id, deltas
            if "time" in data:
                return data["time"], scoped
        elif is_own(event):
            if mark_of(event) == PART:
                continue
            return _time_of(event) or event.at / 1000, scoped
        elif event.kind in foreign.KINDS:
            return event.at / 1000, None
    return row.created / 1000, scoped


def _time_of(event: Event) -> float | None:
    """Return the time of the event of ADK that begins with an event."""
    mark = mark_of(event)
    if event.kind == TEXT:
        mark = fields_of([event])
    elif event.kind == ITEM and mark is not None:
        mark = mark["adk"]
    return mark.get("timestamp") if isinstance(mark, dict) else None


# Conversion


def to_adk(events: Sequence[Event]) -> list[AdkEvent]:
    """Return ADK's events of a part of a conversation. Events of other writers are translated;
    erased events and other kinds are skipped."""
    others = None
    if any(event.kind in foreign.KINDS and not is_own(event) for event in events):
        others = ForeignEvents(events)
    made: list[AdkEvent] = []
    author = "user"  # ADK shows the answers of other agents to a model as reports about them
    place = 0
    while place < len(events):
        event = events[place]
        if event.kind in HEADS and is_own(event):
            fields, place = _own(events, place)
            if fields is not None and fields.get("author") not in (None, "user"):
                author = fields["author"]
        else:
            fields = _translated(event, others, author) if others else None
            place += 1
        if fields is not None and (one := _validated(fields, event)) is not None:
            made.append(one)
    return made


def _own(events: Sequence[Event], place: int) -> tuple[Fields | None, int]:
    """Return the event of ADK that begins at a place, or None, and the place after it."""
    mark = mark_of(events[place])
    end = place + 1
    while end < len(events) and is_own(events[end]) and mark_of(events[end]) == PART:
        end += 1
    if mark is None or mark == PART:
        return None, end
    fields = fields_of(events[place:end])
    if fields is None or events[place].kind == TEXT or mark.get(STATE) != FOLLOWS:
        return fields, end
    if end == len(events) or events[end].kind != states.KIND:
        return fields, end
    mirror = events[end + 1] if end + 1 < len(events) else None
    return with_delta(fields, deltas_of(events[end], mirror).prefixed), end + 1


def _validated(fields: Fields, event: Event) -> AdkEvent | None:
    try:
        if event.kind == TEXT:
            return AdkEvent.model_validate(fields)
        return AdkEvent.model_validate_json(msgspec.json.encode(fields))
    except ValidationError as error:
        log.warning("skipped event %d, which is no event of ADK: %s", event.seq, error)
        return None


def _translated(event: Event, others: ForeignEvents, author: str) -> Fields | None:
    if event.seq in others.outcomes:
        call, outcome = others.outcomes[event.seq]
        part = output_part(call.id, call.name, outcome_text(outcome))
        return foreign_fields(event, author, "user", [part], event.run or event.id)
    message = others.messages.get(event.seq)
    parts = [] if message is None else _parts(message)
    if message is None or not parts:
        return None
    if message.role == "user":
        return foreign_fields(event, "user", "user", parts, event.run or event.id)
    return foreign_fields(event, author, "model", parts, event.run or event.id)


def _parts(message: Message) -> list[dict[str, Any]]:
    parts = [text_part(message.text)] if message.text else []
    return parts + [call_part(call.id, call.name, call.arguments) for call in message.calls]
