"""Finds the checkpoints and writes of one LangGraph thread in its log.

The event id of a checkpoint is derived from its namespace and its own id, so its event is found
without a search. A checkpoint whose id is not larger than all earlier ones is marked `late`. The
search for the newest checkpoint reads the log from its end and stops at the first one that is not
late.
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from ...errors import LogDamaged
from ...log.catalog import Row
from ...log.events import Event, Key
from ...stores.port import Store
from ..reading import skipped
from ..recent import keep
from .lists import Listed

CHECKPOINT = "langgraph.checkpoint"
WRITES = "langgraph.writes"
DELETED = "langgraph.deleted"  # hides a checkpoint with values that other checkpoints need
MARK = "langgraph.mark"  # an event that is found by its id: see the functions below
THREAD = "langgraph:thread"  # id of the mark that every log with checkpoints has

KEPT = 32  # checkpoints, lists and namespaces of a thread in memory
MESSAGES = 512  # messages of a thread in memory
NEAR = 64  # distance of two events that are fetched in one read
BACK = 16  # events in the first read from the end; later reads have more
MOST_BACK = 1 << 20
BATCH = 16  # ids in the first lookup of the writes of a checkpoint


def digest(*parts: str) -> str:
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:32]


def namespace_mark(ns: str) -> str:
    return f"langgraph:namespace:{digest(ns)}"


def run_mark(run: str) -> str:
    return f"langgraph:run:{digest(run)}"


def checkpoint_event(ns: str, id: str, version: int) -> str:
    return f"langgraph:{digest(ns, id)}:{version}"


def writes_event(ns: str, id: str, number: int) -> str:
    return f"langgraph:writes:{digest(ns, id)}:{number}"


class Record(Struct, frozen=True):
    """A stored checkpoint: the number and the data of its event."""

    seq: int
    data: dict[str, Any]

    @property
    def ns(self) -> str:
        return self.data["ns"]  # type: ignore[no-any-return]

    @property
    def id(self) -> str:
        return self.data["id"]  # type: ignore[no-any-return]

    @property
    def parent(self) -> str | None:
        return self.data.get("parent")

    def place(self, channel: str) -> int | None:
        """Return the number of the event with the value of a channel."""
        if channel in self.data["values"]:
            return self.seq
        return self.data["refs"].get(channel)  # type: ignore[no-any-return]


class ThreadLog:
    """A cache of what this process has read from a log or written to it, up to event `head`.
    `refresh` adds the events that others wrote."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.loop = asyncio.get_running_loop()
        self.lock = asyncio.Lock()
        self._forget()

    def _forget(self) -> None:
        self.log: str | None = None
        self.head = 0
        self.erased = 0
        self.top = ""  # the largest id of a checkpoint
        self.current = False  # False if others may have written since `head`
        self.newest: dict[str, Record] = {}  # by namespace
        self.records: dict[tuple[str, str], Record] = {}
        self.lists: dict[tuple[str, str], Listed] = {}  # by namespace and channel
        self.messages: dict[str, tuple[int, Any]] = {}  # number and inline code, by message id
        self.writes: dict[tuple[str, str], int] = {}  # how many a checkpoint has
        self.marks: set[str] = set()

    async def refresh(self, store: Store) -> bool:
        """Read the events that others wrote. Returns False if the log does not exist."""
        row = await store.row(self.key)
        if row is None or row.log != self.log or row.erased != self.erased or row.head < self.head:
            self._forget()
        if row is None:
            self.current = True
            return False
        if self.log is None:
            await self._begin(store, row)
        elif row.head > self.head:
            if row.head - self.head > NEAR * 16:
                self._forget()
                await self._begin(store, row)
            async for event in self.read(store, after=self.head, before=row.head + 1):
                self._take(event)
        self.head = row.head
        self.current = True
        return True

    async def _begin(self, store: Store, row: Row) -> None:
        self.log, self.head, self.erased = row.log, row.head, row.erased
        async with aclosing(self.newest_first(store)) as found:
            async for record in found:
                self.top = record.id
                keep(self.newest, record.ns, record, KEPT)
                self.remember(record)
                break

    def _take(self, event: Event) -> None:
        if event.kind == CHECKPOINT:
            data = event.json()
            if "erased" not in data:
                self.wrote(Record(event.seq, data))
        elif event.kind == DELETED:
            self.newest.clear()
            self.records.clear()
        elif event.kind == WRITES:
            data = event.json()
            if "erased" not in data:
                self.writes.pop((data["ns"], data["checkpoint"]), None)

    def wrote(self, record: Record) -> None:
        """Add a checkpoint that was appended to the log to the cache."""
        self.remember(record)
        last = self.newest.get(record.ns)
        known = last is not None or record.id > self.top
        if known and (last is None or record.id >= last.id):
            keep(self.newest, record.ns, record, KEPT)
        self.top = max(self.top, record.id)

    def remember(self, record: Record) -> None:
        keep(self.records, (record.ns, record.id), record, KEPT)

    # Checkpoints

    async def record(self, store: Store, ns: str, id: str) -> Record | None:
        """Return a checkpoint, or None if it does not exist or was deleted."""
        if found := self.records.get((ns, id)):
            return found
        seq = (await self.versions(store, ns, id))[1]
        events = await self.fetch(store, [seq] if seq else [])
        if seq not in events or events[seq].kind != CHECKPOINT:
            return None
        data = events[seq].json()
        if "erased" in data:
            return None
        record = Record(seq, data)
        self.remember(record)
        return record

    async def versions(self, store: Store, ns: str, id: str) -> tuple[int, int]:
        """Return how many versions of a checkpoint were written, and the number of the event with
        the last one."""
        count = seq = 0
        while True:
            ids = [checkpoint_event(ns, id, count), checkpoint_event(ns, id, count + 1)]
            seqs = await store.seqs(self.key, ids, log=self.log)
            for each in ids:
                if each not in seqs:
                    return count, seq
                count, seq = count + 1, seqs[each]

    async def latest(self, store: Store, ns: str) -> Record | None:
        """Return the checkpoint of a namespace with the largest id."""
        if ns in self.newest:
            return self.newest[ns]
        mark = namespace_mark(ns)
        if ns and mark not in await store.seqs(self.key, [mark], log=self.log):
            return None
        async with aclosing(self.newest_first(store, ns)) as found:
            async for record in found:
                keep(self.newest, ns, record, KEPT)
                self.remember(record)
                return record
        return None

    async def newest_first(
        self, store: Store, ns: str | None = None
    ) -> AsyncGenerator[Record, None]:
        """Yield the checkpoints of a namespace, or of all namespaces, largest id first."""
        held: list[tuple[str, int, Record]] = []
        seen: set[tuple[str, str]] = set()
        async for event in self.read_back(store):
            if event.kind not in (CHECKPOINT, DELETED):
                continue
            data = event.json()
            if "erased" in data:
                continue
            name = data["ns"], data["id"]
            if name not in seen and event.kind == CHECKPOINT and ns in (None, data["ns"]):
                bisect.insort(held, (data["id"], event.seq, Record(event.seq, data)))
            seen.add(name)
            if event.kind == CHECKPOINT and "late" not in data:
                while held and held[-1][0] >= data["id"]:
                    yield held.pop()[2]
        while held:
            yield held.pop()[2]

    # Writes

    async def count_writes(self, store: Store, ns: str, id: str) -> int:
        """Return the number for the next event with writes of a checkpoint: larger than all
        that are in use."""
        if (ns, id) not in self.writes:
            numbers = await self._writes(store, ns, id)
            keep(self.writes, (ns, id), 1 + max(numbers, default=-1), KEPT)
        return self.writes[ns, id]

    async def pending(self, store: Store, ns: str, id: str) -> list[dict[str, Any]]:
        """Return the data of the events with writes of a checkpoint, in the order of their
        numbers."""
        numbers = await self._writes(store, ns, id)
        events = await self.fetch(store, numbers.values())
        found = [events[seq].json() for _, seq in sorted(numbers.items()) if seq in events]
        return [data for data in found if "erased" not in data]

    async def writes_of(self, store: Store, ns: str, id: str) -> list[int]:
        """Return the numbers of the events with the writes of a checkpoint."""
        return [*(await self._writes(store, ns, id)).values()]

    async def _writes(self, store: Store, ns: str, id: str) -> dict[int, int]:
        if self.writes.get((ns, id)) == 0:
            return {}
        found: dict[int, int] = {}
        first, size = 0, BATCH
        while True:
            ids = {writes_event(ns, id, n): n for n in range(first, first + size)}
            seqs = await store.seqs(self.key, [*ids], log=self.log)
            found |= {ids[name]: seq for name, seq in seqs.items()}
            if len(seqs) < size // 2:
                return found
            first, size = first + size, min(4 * size, 512)

    # Events

    async def fetch(self, store: Store, seqs: Iterable[int]) -> dict[int, Event]:
        """Return the events with these numbers. Events near each other are read together."""
        wanted = sorted(set(seqs))
        found: dict[int, Event] = {}
        start = 0
        for end in range(1, len(wanted) + 1):
            if end < len(wanted) and wanted[end] - wanted[end - 1] <= NEAR:
                continue
            some = frozenset(wanted[start:end])
            first, last = wanted[start], wanted[end - 1]
            async for event in self.read(store, after=first - 1, before=last + 1):
                if event.seq in some:
                    found[event.seq] = event
            start = end
        return found

    async def read(self, store: Store, *, after: int, before: int) -> AsyncGenerator[Event, None]:
        """Yield events in order. Those that cannot be read are logged and skipped."""
        while after + 1 < before:
            try:
                stream = store.read(self.key, after=after, before=before, log=self.log)
                async with aclosing(stream) as events:
                    async for event in events:
                        yield event
                        after = event.seq
                return
            except LogDamaged as damage:
                skipped(damage)
                after = damage.seq

    async def read_back(self, store: Store) -> AsyncGenerator[Event, None]:
        """Yield all events, newest first. The caller usually needs only a few of them."""
        before, limit = self.head + 1, BACK
        while before > 1:
            try:
                stream = store.read(
                    self.key, before=before, limit=limit, reverse=True, log=self.log
                )
                async with aclosing(stream) as events:
                    async for event in events:
                        yield event
                        before = event.seq
                limit = min(8 * limit, MOST_BACK)
            except LogDamaged as damage:
                skipped(damage)
                before = damage.seq
