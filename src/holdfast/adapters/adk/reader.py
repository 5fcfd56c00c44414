"""Reads the ADK events of a session: all, or only the newest from the end of the log."""

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
    NATIVE,
    STATE,
    TEXT,
    Fields,
    call_part,
    fields_of,
    foreign_fields,
    is_part,
    mark_of,
    output_part,
    own_data,
    text_part,
    with_delta,
)
from .state import Known, Scoped, StateReader, deltas_of, newest_first, read_state

log = logging.getLogger("holdfast.adapters")

_encode = msgspec.json.Encoder().encode


class Latest(Struct, frozen=True):
    """What is read at the end of a log: its state, the time of the last ADK event in seconds, and
    the changes of user and app state in the last append, with the id of their event."""

    known: Known
    updated: float
    scoped: Scoped | None = None


async def all_events(store: Store, row: Row) -> tuple[list[AdkEvent], Latest]:
    """Return all ADK events of a session up to the head of its row, and the `Latest` of its log."""
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
    """Return the newest ADK events, at most `limit`, with a time of at least `since`, and the
    `Latest` of the log. Reads only as much of the log as needed."""
    end = await latest(store, row)
    if limit == 0:
        return [], end
    events: list[Event] = []
    open = OpenOutcomes()
    count = 0
    async with aclosing(read_newest_first(store, row)) as back:
        async for event in back:
            events.append(event)
            data = own_data(event)
            if data is None:
                open.take(event)
                count += event.kind in foreign.KINDS
            elif is_part(event, data):
                continue
            else:
                count += 1
            if count < limit or open:
                continue
            made = [each for each in to_adk(events[::-1]) if each.timestamp >= since]
            if len(made) >= limit:
                return made[-limit:], end
            count = len(made)
    made = [each for each in to_adk(events[::-1]) if each.timestamp >= since]
    return made[-limit:], end


async def latest(store: Store, row: Row) -> Latest:
    """Read the end of a log."""
    events: list[Event] = []
    async with aclosing(newest_first(store, row.key, row.log, row.head)) as back:
        async for event in back:
            events.append(event)
            data = own_data(event)
            if event.kind in foreign.KINDS if data is None else not is_part(event, data):
                break
    updated, scoped = _end(row, events)
    known = await read_state(store, row.key, row.log, row.head, row.erased)
    return Latest(known, updated, scoped)


def _end(row: Row, newest: Iterable[Event]) -> tuple[float, Scoped | None]:
    """Return the time of the last ADK event, and the changes of user and app state in the last
    append."""
    scoped = None
    for event in newest:
        if event.kind == states.KIND:
            data = states.data_of(event)
            deltas = deltas_of(event, None)
            if scoped is None and deltas.scopes:
                scoped = event.id, deltas
            if "time" in data:
                return data["time"], scoped
            continue
        own = own_data(event)
        if own is not None and not is_part(event, own):
            return _time_of(event, own) or event.at / 1000, scoped
        if own is None and event.kind in foreign.KINDS:
            return event.at / 1000, None
    return row.created / 1000, scoped


def _time_of(event: Event, data: dict[str, Any]) -> float | None:
    """Return the time of the ADK event whose first log event is `event`."""
    fields = mark_of(event, data) if event.kind in NATIVE else fields_of(event, [data])
    return None if fields is None else fields.get("timestamp")


# Conversion


def to_adk(events: Sequence[Event]) -> list[AdkEvent]:
    """Convert successive log events to ADK events. Events of other writers are translated; erased
    events and other kinds are skipped."""
    others: ForeignEvents | None = None
    made: list[AdkEvent] = []
    author = "user"  # the last agent; ADK rephrases the answers of other agents for a model
    place, next = 0, _own_at(events, 0)
    while place < len(events):
        event, data = events[place], next
        place, next = place + 1, _own_at(events, place + 1)
        fields: Fields | None = None
        if data is not None:
            every = [data]
            while next is not None and is_part(events[place], next):
                every.append(next)
                place, next = place + 1, _own_at(events, place + 1)
            fields = _fields(event, every, events[place : place + 2])
            if fields is not None and fields.get("author", "user") != "user":
                author = fields["author"]
        elif event.kind in foreign.KINDS:
            others = others or ForeignEvents(events)
            fields = _translated(event, others, author)
        if fields is not None and (one := _validated(fields, event)) is not None:
            made.append(one)
    return made


def _own_at(events: Sequence[Event], place: int) -> dict[str, Any] | None:
    return own_data(events[place]) if place < len(events) else None


def _fields(head: Event, every: Sequence[dict[str, Any]], after: Sequence[Event]) -> Fields | None:
    """Return the ADK event whose first log event is `head`, or None if it was erased. `after` are
    the next two log events."""
    if is_part(head, every[0]):
        return None
    fields = fields_of(head, every)
    if fields is None or mark_of(head, every[0]).get(STATE) != FOLLOWS:
        return fields
    if not after or after[0].kind != states.KIND:
        return fields
    return with_delta(fields, deltas_of(after[0], after[1] if after[1:] else None).prefixed)


def _validated(fields: Fields, event: Event) -> AdkEvent | None:
    try:
        if event.kind == TEXT:
            return AdkEvent.model_validate(fields)
        return AdkEvent.model_validate_json(_encode(fields))
    except ValidationError as error:
        log.warning("skipped event %d, which is not a valid ADK event: %s", event.seq, error)
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
