"""Fork, restore, erase, and the rebuilding of rows, for the SQLite and PostgreSQL stores.

Each function runs within one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...log import catalog
from ...log.catalog import Parent, Row
from ...log.codec import erased, fingerprint
from ...log.events import Event, Key, NewEvent
from .. import erasure, hash_chain, rules
from ..port import Lease
from .tables import LIVE, RESTORING, E, KeptHash, LogTables, Segment

# Shared events


async def link_of(
    tables: LogTables[E], key: Key, seq: int, *, log: str | None = None
) -> str | None:
    """Return the link of an event of a log. The event may be shared with a parent."""
    entry = rules.existing(key, await tables.lookup(key), log)
    rules.check_at(entry.row, seq, "seq")
    return hash_chain.ending(await tables.kept(await _holder(tables, entry, seq), seq))


async def _holder(tables: LogTables[E], entry: E, seq: int) -> int:
    """Return the log that stores the event with this number: the log itself, or a log that it was
    forked from."""
    (log,) = by_holder(await tables.segments(entry), [seq])
    return log


def by_holder(segments: Sequence[Segment], seqs: Sequence[int]) -> dict[int, list[int]]:
    """Group event numbers by the log that stores them."""
    return {
        log: some
        for log, after, upto in segments
        if (some := [seq for seq in seqs if after < seq <= upto])
    }


# Forking and restoring


async def fork(tables: LogTables[E], key: Key, thread: str, *, at: int, first: NewEvent) -> None:
    """Create a thread that shares the events up to `at`."""
    parent = await tables.locked(key)
    target = Key(key.tenant, key.session, thread)
    there = await tables.lookup(target)
    if there is None:
        known = await tables.known_ids(parent, [first.id])
        rules.check_fork(parent.row, at, first, known)
        base = await _holder(tables, parent, at)
        row, plan = rules.forked(
            target,
            at,
            first,
            await tables.kept(base, at),
            project=tables.project,
            now=await tables.now(),
        )
        new = await tables.begin(row, base=base, shared=at, state=LIVE)
        if new is not None:
            await tables.write(new, plan)
            return
        there = await tables.locked(target)  # another process was faster
    known = await tables.known_ids(there, [first.id])
    rules.check_same_fork(target, there.shared, known, at, first)


class Restore(NamedTuple):
    """A restore in progress: the incarnation of the log, and the last number written."""

    log: str
    head: int


async def begin_restore(tables: LogTables[E], key: Key, parent: Parent | None) -> Restore:
    """Create a hidden log, without a key, that receives the restored events."""
    if await tables.lookup(key) is not None:
        raise rules.exists(key)
    base, at, left = None, 0, None
    if parent is not None:
        entry = await tables.locked(Key(key.tenant, key.session, parent.thread))
        at = parent.at
        rules.check_at(entry.row, at)
        base = await _holder(tables, entry, at)
        left = await tables.kept(base, at)
    now = await tables.now()
    row = rules.new_row(key, now, at=at, base=hash_chain.link_in(left))
    until = now + rules.RESTORE_MS
    await tables.begin(row, base=base, shared=at, state=RESTORING, until=until)
    return Restore(row.log, at)


async def restore_some(tables: LogTables[E], restore: Restore, events: Sequence[Event]) -> Restore:
    """Write the next events of a restore, keeping their numbers, ids and times."""
    entry = await tables.restoring(restore.log)
    if entry.row.head == restore.head:  # otherwise an earlier attempt wrote them
        known = await tables.known_ids(entry, [event.id for event in events])
        rules.check_restored(entry.row, events, known)
        given = hash_chain.seals(events)
        plan = rules.restored(entry.row, entry.shared, events, given, tables.project)
        await tables.write_restored(entry, plan, await tables.now() + rules.RESTORE_MS)
    return Restore(restore.log, events[-1].seq)


async def end_restore(tables: LogTables[E], key: Key, restore: Restore) -> None:
    """Assign the key to the restored log, which makes it visible."""
    entry = await tables.restoring(restore.log)
    rules.check_restored_end(entry.row, entry.shared)
    there = await tables.lookup(key)
    if there is None:
        await tables.publish(entry, key)
    elif there.id != entry.id:  # if equal, an earlier attempt published it
        raise rules.exists(key)


# Erasing, and rebuilding rows


async def erase(
    tables: LogTables[E], key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
) -> dict[str, int]:
    """Replace the data of events, rebuild the rows, and drop the snapshots. Returns the counts for
    the receipt."""
    entry = await tables.locked(key)
    numbers = erasure.check_erase(entry.row, entry.lease, seqs, fence)
    parts = by_holder(await tables.segments(entry), numbers)
    for log, some in parts.items():
        found = await tables.hashes(log, some)
        erasure.check_erasable((seq, kind, link) for seq, _, kind, _, _, link in found)
    await tables.erasing(parts, reason)
    dropped = 0
    for log, some in parts.items():
        await blank(tables, log, some, reason)
        dropped += await tables.drop_snapshots(log, forks=True)
    return {"payloads": len(numbers), "snapshots": dropped}


async def blank(
    tables: LogTables[E], log: int, seqs: Sequence[int], reason: str, *, damaged: bool = False
) -> None:
    """Replace the data of a log's own events with `{"erased": reason}`, and rebuild its row."""
    data = erased(reason)
    kept = {
        seq: KeptHash(
            fingerprint(NewEvent(kind=kind, data=data, id=id, v=v)),
            hash_chain.erased(link, hash, damaged=damaged),
        )
        for seq, id, kind, v, hash, link in await tables.hashes(log, seqs)
    }
    await tables.replace(log, data, kept)
    if await tables.state(log, "FOR UPDATE") == LIVE:
        entry = await tables.entry(log)
        await tables.save_row(log, entry.row, await projected(tables, entry))


async def projected(tables: LogTables[E], entry: E) -> Row:
    """Rebuild the row from the log's own events, and return it."""
    row = rules.empty_row(entry.row, entry.shared)
    upto = entry.row.head
    while row.head < upto:
        events = [
            stored.event for stored in await tables.events(entry.row.key, entry.id, row.head, upto)
        ]
        if not events:
            break  # events are missing, which `verify` reports separately
        row = catalog.apply(row, events, [tables.project(event) for event in events])
    link = hash_chain.ending(await tables.kept(entry.id, row.head))
    return msgspec.structs.replace(row, link=link)
