"""Reads conversations from the end of their logs: the current record, and the entries."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from msgspec import Struct
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord

from ...log.catalog import Query, Row
from ...log.events import Event, Key
from ...stores.port import Store
from .. import foreign
from ..foreign import ForeignEvents, OpenOutcomes, outcome_text
from ..reading import read_newest_first
from . import messages as codec
from .json_messages import Json, from_json
from .records import RECORD, from_event

LABEL = "pydantic_ai"  # label of the sessions that have a record
SCOPE = "pydantic_ai.scope"  # key in the metadata of these sessions
PAGE = 100
REWOUND = "thread.rewound"
FOREIGN = "holdfast:"  # prefix of the entry ids for messages of other writers
OUTCOMES = {"ok": "success", "denied": "denied"}


class StoredRecord(Struct, frozen=True):
    """The row of a log, and its current record, which is None if the log has no conversation."""

    row: Row
    record: ConversationRecord | None


# Records


async def current(store: Store, at: Key) -> StoredRecord | None:
    """Return the current record of a conversation, or None if the session does not exist."""
    row = await store.row(at)
    return None if row is None else StoredRecord(row, await record_of(store, row))


async def record_of(store: Store, row: Row) -> ConversationRecord | None:
    """Return the current record of a row. If other writers changed the conversation after the last
    record, a record is derived: its head is the last message, and its revision is derived from the
    last change."""
    changed: Event | None = None
    record: ConversationRecord | None = None
    async with aclosing(read_newest_first(store, row)) as back:
        async for event in back:
            if event.kind == RECORD and (record := from_event(event)) is not None:
                break
            if changed is None and _changes(event):
                changed = event
    if changed is None:
        return record
    entries = await history(store, row, row.head, 1)
    base = record or ConversationRecord(conversation_id=row.session, head_id=None)
    head = entries[-1].id if entries else None
    return ConversationRecord(
        conversation_id=base.conversation_id,
        head_id=head,
        usage=base.usage,
        deferred_tool_requests=base.deferred_tool_requests if head == base.head_id else None,
        scope=base.scope,
        forked_from=base.forked_from,
        forked_at=base.forked_at,
        branches=base.branches,
        revision=f"{row.log}:{changed.seq}",
        updated_at=_time(changed),
    )


def _changes(event: Event) -> bool:
    return event.kind in (*foreign.KINDS, *codec.ENDS, REWOUND)


async def records(
    store: Store, tenant: str, scope: str | None, limit: int | None
) -> list[ConversationRecord]:
    """Return the records of all sessions that have one, most recently saved first."""
    metadata = {} if scope is None else {SCOPE: scope}
    query = Query(tenant=tenant, label=LABEL, metadata=metadata)
    found: dict[str, ConversationRecord] = {}
    cursor, second = None, 0
    while limit != 0:
        page = await store.find(query, cursor=cursor, limit=PAGE)
        for row in page.items:
            if limit is not None and len(found) >= limit and row.active < second:
                return _newest(found, limit)
            record = await record_of(store, row)
            if record is not None and scope in (None, record.scope):
                found[row.session] = record
                second = row.active  # rows are sorted by seconds, records by `updated_at`
        if (cursor := page.cursor) is None:
            break
    return _newest(found, limit)


def _newest(found: dict[str, ConversationRecord], limit: int | None) -> list[ConversationRecord]:
    return sorted(found.values(), key=lambda record: record.updated_at, reverse=True)[:limit]


# Entries


async def locate(store: Store, tenant: str, entry: str, near: Key | None) -> tuple[Row, int]:
    """Return a log that contains an entry, and the number of the entry's last event. A conversation
    shares entries with its forks; the log `near` is preferred. Raises `LookupError` if no log
    contains the entry."""
    if (
        near is not None
        and (row := await store.row(near))
        and (seq := await seq_of(store, row, entry))
    ):
        return row, seq
    keys = await store.locate(tenant, codec.entry_event(entry))
    if place := foreign_place(entry):
        keys.append(Key(tenant, place[2], "main"))
    for key in keys:
        if (row := await store.row(key)) and (seq := await seq_of(store, row, entry)):
            return row, seq
    raise LookupError(f"entry {entry!r} is not in the store")


async def _in(store: Store, key: Key, entry: str) -> tuple[Row, int] | None:
    row = await store.row(key)
    seq = 0 if row is None else await seq_of(store, row, entry)
    return None if row is None or not seq else (row, seq)


async def seq_of(store: Store, row: Row, entry: str) -> int:
    """Return the number of the last event of an entry, or 0 if the log does not contain it."""
    id = codec.entry_event(entry)
    if seq := (await store.seqs(row.key, [id], log=row.log)).get(id):
        return seq
    place = foreign_place(entry)
    here = place is not None and place[0] == row.log and place[1] <= row.head
    return place[1] if place is not None and here else 0


def foreign_id(row: Row, seq: int) -> str:
    """Return an entry id for an event of another writer."""
    return f"{FOREIGN}{row.log}:{seq}:{row.session}"


def foreign_place(entry: str) -> tuple[str, int, str] | None:
    """Return the log, event number and session from an id of `foreign_id`; None for other ids."""
    if not entry.startswith(FOREIGN):
        return None
    log, _, rest = entry.removeprefix(FOREIGN).partition(":")
    seq, _, session = rest.partition(":")
    return (log, int(seq), session) if seq.isdecimal() and session else None


async def history(store: Store, row: Row, last: int, limit: int | None) -> list[ConversationEntry]:
    """Return the entries of the conversation as it was right after event `last`, oldest first. With
    `limit`, return only the newest entries, and read only as much of the log as needed."""
    if limit == 0:
        return []
    events: list[Event] = []
    open, missing, count = OpenOutcomes(), 0, 0
    at = Row(tenant=row.tenant, session=row.session, thread=row.thread, log=row.log, head=last)
    async with aclosing(read_newest_first(store, at)) as back:
        async for event in back:
            events.append(event)
            own = codec.is_end(event)
            part = missing > 0
            if part:
                missing -= 1
            else:
                missing = codec.parts_before(event) if own else 0
                open.take(event)
            count += own or (not part and event.kind in foreign.KINDS)
            # One more entry than `limit` is read, as the parent of the first.
            if limit is None or count <= limit or open or missing:
                continue
            entries = _entries(row, events[::-1])
            count = len(entries)
            if count > limit:
                return entries[-limit:]
    entries = _entries(row, events[::-1])
    return entries if limit is None else entries[-limit:]


def _entries(row: Row, events: Sequence[Event]) -> list[ConversationEntry]:
    """Return the entries of successive events. Events of other writers are translated; erased
    events and other kinds are skipped."""
    by_seq = {event.seq: event for event in events}
    own: dict[int, tuple[str, Json]] = {}
    parts: set[int] = set()
    for event in events:
        if codec.is_end(event):
            first = event.seq - codec.parts_before(event)
            made = codec.message_of(event, by_seq)
            parts.update(range(first, event.seq + 1))
            if made is not None:
                own[event.seq] = made
    others = [event for event in events if event.seq not in parts]
    theirs = {}
    if any(event.kind in foreign.KINDS for event in others):
        theirs = _translated(events, others)
    ids = {seq: id for seq, (id, _) in own.items()} | {seq: foreign_id(row, seq) for seq in theirs}
    made_of = {seq: made for seq, (_, made) in own.items()} | theirs
    seqs = sorted(made_of)
    entries: list[ConversationEntry] = []
    parent: str | None = None
    for seq, message in zip(seqs, from_json([made_of[seq] for seq in seqs]), strict=True):
        if message is not None:
            entries.append(ConversationEntry(id=ids[seq], parent_id=parent, message=message))
            parent = ids[seq]
    return entries


def _translated(events: Sequence[Event], others: Sequence[Event]) -> dict[int, Json]:
    """Convert the events of other writers to messages, by event number."""
    read = ForeignEvents(events)
    found: dict[int, Json] = {}
    for event in others:
        at = _time(event).isoformat()
        if event.seq in read.outcomes:
            call, outcome = read.outcomes[event.seq]
            how = OUTCOMES.get(outcome.outcome, "failed")
            text = outcome_text(outcome)
            found[event.seq] = codec.tool_return(call.id, call.name, text, how, at)
        elif event.seq in read.messages:
            message = read.messages[event.seq]
            calls = [(call.id, call.name, call.arguments) for call in message.calls]
            if message.role == "user" and message.text:
                found[event.seq] = codec.user_message(message.text, at)
            elif message.role == "assistant" and (message.text or calls):
                found[event.seq] = codec.response(message.text, calls, at)
    return found


def _time(event: Event) -> datetime:
    return datetime.fromtimestamp(event.at / 1000, UTC)
