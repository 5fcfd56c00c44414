"""Deletes, prunes and copies threads.

Deleting a checkpoint erases its event, its writes and its messages, except those that a remaining
checkpoint needs. If its own event is needed, because it has a value of a remaining checkpoint, an
event `langgraph.deleted` hides the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Any

from ...errors import SessionExists
from ...log.codec import LIMITS
from ...log.events import Event, Key, NewEvent, Scope
from ...stores.port import Store
from ..retries import persist
from ..writing import ERASED_AT_ONCE
from . import thread as names
from .messages import FIELD, NATIVE
from .reader import checkpoint_of
from .thread import CHECKPOINT, DELETED, WRITES, Record, ThreadLog
from .values import Codec

REASON = "the checkpoint was deleted"
DELTA = "counters_since_delta_snapshot"  # in the metadata: the delta channels

Name = tuple[str, str]  # namespace and id of a checkpoint


async def delete_thread(store: Store, key: Key) -> None:
    await store.delete(Scope(key.tenant, key.session))


async def copy_thread(store: Store, source: Key, target: Key) -> None:
    """Copy a log to a session that does not exist yet; nothing happens if the source does
    not exist."""
    row = await store.row(source)
    if row is None:
        return
    if await store.row(target) is not None:
        raise SessionExists(tenant=target.tenant, session=target.session, thread=target.thread)
    await store.restore(target, store.read(source, before=row.head + 1, log=row.log))


async def keep_latest(store: Store, log: ThreadLog, codec: Codec) -> None:
    """Delete all checkpoints except the latest of each namespace."""

    def doomed(records: Sequence[Record]) -> set[Name]:
        latest = {record.ns: record for record in reversed(records)}
        return {_name(each) for each in records if each is not latest[each.ns]}

    await _remove(store, log, codec, doomed)


async def delete_run(store: Store, log: ThreadLog, codec: Codec, run: str) -> None:
    """Delete the checkpoints of a run."""

    def doomed(records: Sequence[Record]) -> set[Name]:
        return {
            _name(record)
            for record in records
            if codec.decode(record.data["metadata"]).get("run_id") == run
        }

    await _remove(store, log, codec, doomed)


async def _remove(store: Store, log: ThreadLog, codec: Codec, choose: Any) -> None:
    async def attempt(_: bool) -> None:
        async with log.lock:
            if await log.refresh(store):
                await _remove_once(store, log, codec, choose)

    await persist(attempt)


async def _remove_once(store: Store, log: ThreadLog, codec: Codec, choose: Any) -> None:
    async with aclosing(log.newest_first(store)) as found:
        records = [record async for record in found]
    by_name = {_name(record): record for record in records}
    doomed = choose(records)
    kept = [record for name, record in by_name.items() if name not in doomed]
    for name in _ancestors(kept, by_name, codec):
        if name in doomed:
            doomed.discard(name)
            kept.append(by_name[name])
    if not doomed:
        return
    events = [event async for event in log.read(store, after=0, before=log.head + 1)]
    needed = _needed(kept, events)
    dead = [event.seq for event in events if _is_dead(event, doomed, needed)]
    gone = set(dead)
    hidden = [by_name[name] for name in doomed if by_name[name].seq not in gone]
    tombs = [await _tomb(store, log, record) for record in hidden]
    step = LIMITS.append_events - 2
    for start in range(0, len(tombs), step):
        done = await store.append(log.key, tombs[start : start + step], log=log.log)
        log.head = done.head
    for start in range(0, len(dead), ERASED_AT_ONCE):
        await store.erase(log.key, dead[start : start + ERASED_AT_ONCE], reason=REASON)
    log.current = False


def _name(record: Record) -> Name:
    return record.ns, record.id


async def _tomb(store: Store, log: ThreadLog, record: Record) -> NewEvent:
    version, _ = await log.versions(store, record.ns, record.id)
    id = names.checkpoint_event(record.ns, record.id, version)
    return NewEvent.of(DELETED, {"ns": record.ns, "id": record.id}, id=id)


def _ancestors(kept: Iterable[Record], by_name: dict[Name, Record], codec: Codec) -> Iterable[Name]:
    """Yield the ancestors of kept checkpoints whose writes are needed to rebuild a delta
    channel."""
    for record in [*kept]:
        channels = set(codec.decode(record.data["metadata"]).get(DELTA) or ())
        channels &= set(checkpoint_of(record, codec)["channel_versions"])
        step: Record | None = record
        left = {channel for channel in channels if record.place(channel) is None}
        while left and step is not None and step.parent is not None:
            step = by_name.get((step.ns, step.parent))
            if step is not None:
                yield _name(step)
                left = {channel for channel in left if step.place(channel) is None}


def _needed(kept: Iterable[Record], events: Sequence[Event]) -> set[int]:
    """Return the numbers of the events that have the values and messages of these checkpoints."""
    data = {event.seq: event.json() for event in events if event.kind == CHECKPOINT}
    needed: set[int] = set()
    known: set[tuple[int, str]] = set()
    left: list[tuple[int, str]] = []
    for record in kept:
        needed.add(record.seq)
        left += [(place, channel) for channel, place in record.data["refs"].items()]
        left += [(record.seq, channel) for channel in record.data["values"]]
    while left:
        place, channel = left.pop()
        if (place, channel) in known:
            continue
        known.add((place, channel))
        needed.add(place)
        code = data.get(place, {}).get("values", {}).get(channel) or {}
        if tail := code.get("tail"):
            left.append((tail["base"], channel))
        items = tail["items"] if tail else code.get("items", ())
        needed.update(item for item in items if isinstance(item, int))
    return needed


def _is_dead(event: Event, doomed: set[Name], needed: set[int]) -> bool:
    if event.seq in needed or event.kind not in (CHECKPOINT, WRITES, *NATIVE):
        return False
    data = event.json()
    if "erased" in data:
        return False
    if event.kind in NATIVE:
        return FIELD in data
    return (data["ns"], data["id" if event.kind == CHECKPOINT else "checkpoint"]) in doomed
