"""Writes checkpoints and pending writes to the log of a thread. A checkpoint and its new messages
are written in one append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from msgspec import Struct

from ...errors import StoreUnavailable
from ...log.events import Appended, NewEvent
from ...stores.port import Store
from ..recent import keep
from ..retries import persist
from ..writing import created
from . import thread as names
from .lists import ItemCode, Listed, encode_list
from .messages import to_event
from .reader import checkpoint_of, load_list
from .thread import CHECKPOINT, MARK, MESSAGES, THREAD, WRITES, Record, ThreadLog
from .values import Code, Codec

AGENT = "langgraph"  # agent name of the sessions that this adapter creates
CONVERSATION = "messages"  # the channel whose messages are native events
MOST_NATIVE = 900  # native events in one append
MOST_MARKS = 1_000


class Put(Struct, frozen=True):
    """The arguments of one call of `put`; `parent` is the id of the checkpoint before this one."""

    ns: str
    parent: str | None
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    new_versions: Mapping[str, Any]


async def write_checkpoint(store: Store, log: ThreadLog, codec: Codec, put: Put) -> None:
    sent: CheckpointEvents | None = None

    async def attempt(repeated: bool) -> None:
        nonlocal sent
        if sent is None:  # else the reply was lost: it may be in the log
            if not log.current:
                await log.refresh(store)
            sent = CheckpointEvents(store, log, codec, put)
            await sent.make()
        try:
            done = await append(store, log, sent.events, expected=sent.head)
        except StoreUnavailable:
            log.current = False
            raise
        except BaseException:
            sent, log.current = None, False
            raise
        sent.written(done)

    async with log.lock:
        await persist(attempt)


class CheckpointEvents:
    """The events that store a checkpoint, numbered from the head of the log, and the additions to
    the cache of the log once they are stored."""

    def __init__(self, store: Store, log: ThreadLog, codec: Codec, put: Put) -> None:
        self._store, self._log, self._codec, self._put = store, log, codec, put
        self.head = log.head
        self._first = log.head + 1 + (log.log is None)  # number of the first event
        self._natives: list[NewEvent] = []
        self._messages: dict[str, tuple[int, Code]] = {}
        self._lists: dict[str, Listed] = {}
        self._data: dict[str, Any] = {}
        self._marks: list[NewEvent] = []
        self.events: list[NewEvent] = []

    async def make(self) -> None:
        put, log = self._put, self._log
        id = put.checkpoint["id"]
        parent = None if put.parent is None else await log.record(self._store, put.ns, put.parent)
        rest = {k: v for k, v in put.checkpoint.items() if k not in ("id", "channel_values")}
        values, refs = await self._values(parent)
        self._data = {
            "ns": put.ns,
            "id": id,
            "checkpoint": self._codec.encode(rest),
            "metadata": self._codec.encode(dict(put.metadata)),
            "values": values,
            "refs": refs,
        }
        if put.parent is not None:
            self._data["parent"] = put.parent
        version = 0
        if id <= log.top:
            self._data["late"] = True
            version, _ = await log.versions(self._store, put.ns, id)
        event_id = names.checkpoint_event(put.ns, id, version)
        self._marks = self._missing_marks()
        event = NewEvent.of(CHECKPOINT, self._data, id=event_id)
        self.events = [*self._natives, event, *self._marks]

    async def _values(self, parent: Record | None) -> tuple[dict[str, Code], dict[str, int]]:
        """Return the codes of the values that changed, and the numbers of the events that have the
        other values."""
        put = self._put
        given: Mapping[str, Any] = put.checkpoint["channel_values"]
        before = checkpoint_of(parent, self._codec)["channel_versions"] if parent else {}
        values: dict[str, Code] = {}
        refs: dict[str, int] = {}
        for channel, version in put.checkpoint["channel_versions"].items():
            place = None if parent is None else parent.place(channel)
            changed = channel in put.new_versions or before.get(channel) != version
            if not changed and place is not None:
                refs[channel] = place
            elif channel in given:
                values[channel] = await self._value(channel, given[channel], place)
        return values, refs

    async def _value(self, channel: str, value: Any, place: int | None) -> Code:
        if type(value) is not list or not value or not self._codec.plain:
            return self._codec.encode(value)
        ns, last = self._put.ns, None
        if place is not None:
            last = self._log.lists.get((ns, channel))
            if last is None or last.seq != place:
                last = await load_list(self._store, self._log, self._codec, place, channel)
        encode = partial(self._item, ns == "" and channel == CONVERSATION)
        code, self._lists[channel] = encode_list(value, last, self._codec, encode)
        return code

    def _item(self, native: bool, item: Any, code: Code) -> ItemCode:
        """Return the code of an item of a list: for a message, the number of its event."""
        if not isinstance(item, BaseMessage) or "message" not in code:
            return code
        known = self._messages.get(item.id or "") or self._log.messages.get(item.id or "")
        if known is not None and known[1] == code:
            return known[0]
        event = to_event(code["message"]) if native else None
        if event is None or len(self._natives) == MOST_NATIVE:
            return code
        seq = self._first + len(self._natives)
        self._natives.append(event)
        if item.id:
            self._messages[item.id] = seq, code
        return seq

    def _missing_marks(self) -> list[NewEvent]:
        ns, run = self._put.ns, self._put.metadata.get("run_id")
        ids = [THREAD]
        if ns:
            ids.append(names.namespace_mark(ns))
        if isinstance(run, str):
            ids.append(names.run_mark(run))
        return [NewEvent.of(MARK, {}, id=id) for id in ids if id not in self._log.marks]

    def written(self, done: Appended) -> None:
        """Update the cache of the log after the append."""
        log, seq = self._log, self._first + len(self._natives)
        if log.log is None or not done.fresh:  # the head, or the log's name, is not known
            log.current = False
            return
        log.head = done.head
        log.wrote(Record(seq, self._data))
        if len(log.marks) > MOST_MARKS:
            log.marks.clear()
        log.marks.update(mark.id for mark in self._marks)
        for channel, listed in self._lists.items():
            listed.written(seq)
            keep(log.lists, (self._put.ns, channel), listed, names.KEPT)
        for id, known in self._messages.items():
            keep(log.messages, id, known, MESSAGES)


async def append(
    store: Store, log: ThreadLog, events: Sequence[NewEvent], *, expected: int | None = None
) -> Appended:
    """Append events to the log of a thread, which is created if it does not exist."""
    if log.log is None:
        return await store.append(
            log.key, [created(AGENT), *events], create=True, expected=expected
        )
    return await store.append(log.key, events, expected=expected, log=log.log)


async def write_writes(
    store: Store,
    log: ThreadLog,
    codec: Codec,
    *,
    ns: str,
    checkpoint: str,
    writes: Sequence[tuple[str, Any]],
    task: str,
    path: str,
) -> None:
    """Write the pending writes of one task."""
    data = {"ns": ns, "checkpoint": checkpoint, "task": task, "path": path}
    coded = [
        [WRITES_IDX_MAP.get(channel, index), channel, codec.encode(value)]
        for index, (channel, value) in enumerate(writes)
    ]
    event = NewEvent.of(WRITES, {**data, "writes": coded})
    tried: int | None = None

    async def attempt(repeated: bool) -> None:
        nonlocal tried
        if not log.current:
            await log.refresh(store)
        number = tried  # if the reply was lost, the event may be in the log
        if number is None:
            number = await log.count_writes(store, ns, checkpoint) if log.log else 0
        while True:
            tried = number
            id = names.writes_event(ns, checkpoint, number)
            sent = NewEvent(kind=WRITES, data=event.data, id=id)
            try:
                done = await append(store, log, [sent])
            except BaseException:
                log.current = False
                log.writes.pop((ns, checkpoint), None)
                raise
            number += 1
            if done.head != log.head + done.fresh or log.log is None:
                log.current = False
            log.head = done.head
            if done.fresh == 0 or (log.log is None and done.fresh == 1):
                known = (await log.fetch(store, done.seqs)).get(done.seqs[-1])
                if known is not None and bytes(known.data) != bytes(event.data):
                    continue  # another writer was faster
            keep(log.writes, (ns, checkpoint), number, names.KEPT)
            return

    async with log.lock:
        await persist(attempt)
