"""Writes a record and its new entries in one append, which fails if another writer has appended in
the meantime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import uuid4

from msgspec import Struct
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
)

from ...errors import HeadMoved, InvalidValue, LogReplaced, SessionNotFound
from ...log.catalog import Row
from ...log.codec import LIMITS
from ...log.events import Key, NewEvent, Scope
from ...stores.port import Store
from ..retries import persist
from ..writing import SPARE_BYTES, created, rewind_event
from . import messages as codec
from . import reader
from .json_messages import to_json
from .reader import LABEL, SCOPE
from .records import to_event

AGENT = "pydantic_ai"  # agent name of the sessions that this adapter creates
MOST_EVENTS = LIMITS.append_events - 10  # the most events of messages in one append


Made = tuple[str, list[NewEvent]]  # an entry's id, and the events of its message


class SaveStep(Struct, frozen=True):
    """One append: the events of messages that follow the entry `base`, and the record that replaces
    the record with revision `expected`."""

    record: ConversationRecord
    base: str | None
    events: list[NewEvent]
    expected: str | None


async def write(
    store: Store,
    at: Key,
    record: ConversationRecord,
    entries: Sequence[ConversationEntry],
    expected: str | None,
    near: Key | None,
) -> None:
    """Add entries and replace the record with revision `expected`. Messages that do not fit in one
    append are split into several, each with its own record, so that the conversation is consistent
    after each append. `near` is the log from which a fork copies its messages."""
    _check(record, entries)
    added = [(entry.id, codec.to_events(entry.id, to_json(entry.message))) for entry in entries]
    parent = entries[0].parent_id if entries else record.head_id
    try:
        base, copies = await persist(lambda _: _base(store, at, parent, near))
    except LookupError as error:
        raise ConversationConflict(record.conversation_id) from error
    chunks = [*_chunks([*copies, *added])] or [[]]
    for number, chunk in enumerate(chunks, 1):
        step = record
        if number < len(chunks):
            step = replace(record, head_id=chunk[-1][0], revision=str(uuid4()))
        events = [event for _, made in chunk for event in made]
        await _append(store, at, SaveStep(step, base, [*events, to_event(step)], expected))
        base, expected = step.head_id, step.revision


def _check(record: ConversationRecord, entries: Sequence[ConversationEntry]) -> None:
    ids = [entry.id for entry in entries]
    if ids and (record.head_id != ids[-1] or [e.parent_id for e in entries[1:]] != ids[:-1]):
        raise InvalidValue(
            field="new_entries",
            problem="are not a chain of entries that ends at the head of the record",
            remedy="pass each entry after its parent, and set head_id to the last entry",
        )


async def _base(
    store: Store, at: Key, parent: str | None, near: Key | None
) -> tuple[str | None, list[Made]]:
    """Return the entry after which the new entries are added, and the messages to copy before them:
    those that a fork shares with the conversation that it was forked from. Raises `LookupError` if
    no log contains the parent."""
    row = await store.row(at)
    if parent is None or (row is not None and await reader.seq_of(store, row, parent)):
        return parent, []
    source, seq = await reader.locate(store, at.tenant, parent, near)
    copies: list[Made] = []
    for entry in reversed(await reader.history(store, source, seq, None)):
        if row is not None and await reader.seq_of(store, row, entry.id):
            return entry.id, copies[::-1]
        copies.append((entry.id, codec.to_events(entry.id, to_json(entry.message))))
    return None, copies[::-1]


def _chunks(messages: Sequence[Made]) -> Iterator[list[Made]]:
    """Yield the messages in batches that a store accepts in one append. Usually one is enough."""
    chunk: list[Made] = []
    count = size = 0
    for message in messages:
        bytes_ = sum(len(event.data) for event in message[1])
        count, size = count + len(message[1]), size + bytes_
        if chunk and (count > MOST_EVENTS or size > LIMITS.append_bytes - SPARE_BYTES):
            yield chunk
            chunk, count, size = [], len(message[1]), bytes_
        chunk.append(message)
    if chunk:
        yield chunk


async def _append(store: Store, at: Key, step: SaveStep) -> None:
    sent: tuple[list[NewEvent], Row | None] | None = None

    async def attempt(_: bool) -> None:
        nonlocal sent
        if sent is None:  # otherwise the reply was lost, and the append may be in the log
            sent = await _planned(store, at, step)
        events, row = sent
        try:
            if row is None:
                await store.append(at, events, create=True, expected=0)
            else:
                await store.append(at, events, expected=row.head, log=row.log)
        except (HeadMoved, LogReplaced, SessionNotFound):
            sent = None
            raise

    await persist(attempt)


async def _planned(store: Store, at: Key, step: SaveStep) -> tuple[list[NewEvent], Row | None]:
    """Return the events of an append, and the row after whose head they are appended. Raises
    `ConversationConflict` if the record was replaced by another writer."""
    record = step.record
    found = await reader.current(store, at)
    last = None if found is None else found.record
    if (None if last is None else last.revision) != step.expected:
        raise ConversationConflict(record.conversation_id)
    marks = {} if record.scope is None else {SCOPE: record.scope}
    if found is None:
        first = created(AGENT, labels=[LABEL], metadata=marks)
        return [first, *step.events], None
    row, events = found.row, []
    if step.base != (None if last is None else last.head_id):
        to = 0 if step.base is None else await reader.seq_of(store, row, step.base)
        events.append(await rewind_event(store, row, to))
    if LABEL not in row.labels:
        events.append(NewEvent.of("label.added", {"label": LABEL}))
    if {SCOPE: row.metadata.get(SCOPE)} != {SCOPE: record.scope}:
        change = {"set": marks} if marks else {"drop": [SCOPE]}
        events.append(NewEvent.of("metadata.changed", change))
    return [*events, *step.events], row


async def delete(store: Store, at: Key, expected: str) -> None:
    """Delete a conversation whose record has revision `expected`, with its session and all
    events."""
    sent: str | None = None

    async def attempt(_: bool) -> None:
        nonlocal sent
        found = await reader.current(store, at)
        if sent is not None and (found is None or found.row.log != sent):
            return  # the reply was lost
        if found is None or found.record is None or found.record.revision != expected:
            raise ConversationConflict(at.session)
        sent = found.row.log
        try:
            await store.delete(Scope(at.tenant, at.session), expected=found.row.head)
        except HeadMoved:
            sent = None
            raise

    await persist(attempt)
