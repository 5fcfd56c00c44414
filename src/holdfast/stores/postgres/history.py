"""Operations on whole logs: fork, restore, erase, and rebuilding a row. Each is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from asyncpg import UniqueViolationError

from ...errors import InvalidValue, SessionExists, StoreUnavailable
from ...log import catalog
from ...log.catalog import Parent, Project, Row
from ...log.codec import dense, erased, fingerprint
from ...log.events import Event, Key, NewEvent
from .. import links, rules
from ..frames import packed
from ..port import Lease
from .columns import encode
from .database import Link
from .log import (
    PostgresLogEntry,
    begin,
    entry_by_id,
    existing,
    holder,
    kept_of,
    known_ids,
    lookup,
    save_row,
    segments,
    write,
)
from .read import own_events
from .schema import LIVE, RESTORING

# Forking and restoring


async def fork(
    link: Link, project: Project, now: int, key: Key, thread: str, at: int, first: NewEvent
) -> None:
    """Create a thread that shares the events up to `at`."""
    entry = await existing(link, key)
    target = Key(key.tenant, key.session, thread)
    if (there := await lookup(link, target)) is not None:
        await _same_fork(link, there, at, first)
        return
    rules.check_open(entry.row)
    rules.check_at(entry.row, at)
    if (await known_ids(link, entry, [first.id])).get(first.id, at + 1) <= at:
        raise InvalidValue(
            field="first",
            problem="has the id of an event in the shared history",
            remedy="use a new id",
        )
    event = first.numbered(at + 1, now)
    base = await holder(link, entry, at)
    left = links.link_in(await kept_of(link, base, at))
    empty = rules.new_row(target, now, at=at, base=left)
    plan = rules.extended(empty, [event], links.seals([event]), [project(event)])
    id = await begin(link, plan.row, base=base, shared=at, state=LIVE)
    if id is None:
        there = await existing(link, target)
        await _same_fork(link, there, at, first)
        return
    await write(link, id, plan)
    await save_row(link, id, None, plan.row)


async def _same_fork(link: Link, there: PostgresLogEntry, at: int, first: NewEvent) -> None:
    """Reject a fork to a thread that exists, unless it is this very fork."""
    known = await known_ids(link, there, [first.id])
    if at == 0 or there.shared != at or known.get(first.id) != at + 1:
        key = there.row.key
        raise SessionExists(tenant=key.tenant, session=key.session, thread=key.thread)


async def begin_restore(link: Link, now: int, until: int, key: Key, parent: Parent | None) -> int:
    """An unnamed log to restore into."""
    if await lookup(link, key) is not None:
        raise SessionExists(tenant=key.tenant, session=key.session, thread=key.thread)
    row = rules.new_row(key, now)
    base, shared = None, 0
    if parent is not None:
        entry = await existing(link, Key(key.tenant, key.session, parent.thread))
        rules.check_at(entry.row, parent.at)
        base = await holder(link, entry, parent.at)
        shared = parent.at
        left = links.link_in(await kept_of(link, base, shared))
        row = rules.new_row(key, now, at=shared, base=left)
    id = await begin(link, row, base=base, shared=shared, state=RESTORING, until=until)
    assert id is not None
    return id


async def _restoring(link: Link, id: int) -> PostgresLogEntry:
    """The log that a restore writes to, unless it paused for so long that it was discarded."""
    state = await link.value("SELECT state FROM hf.logs WHERE id = $1 FOR UPDATE", id)
    if state not in (RESTORING, LIVE):  # LIVE: done, and the reply was lost
        raise StoreUnavailable(
            problem="the restore paused for too long and was discarded; "
            "restore the session again from its first event"
        )
    return await entry_by_id(link, id)


async def restore_some(
    link: Link, project: Project, until: int, id: int, events: Sequence[Event]
) -> None:
    """Write the next events of a restore with the given numbers, ids and times."""
    entry = await _restoring(link, id)
    row = entry.row
    if row.head >= events[-1].seq and (await _ids(link, id, events)) == [e.id for e in events]:
        return  # written, and the reply was lost
    dense(events, row.head)
    ids = [event.id for event in events]
    if len(set(ids)) < len(ids) or await known_ids(link, entry, ids):
        raise InvalidValue(field="id", problem="occurs twice", remedy="pass each event once")
    if row.head == entry.shared:
        row = msgspec.structs.replace(row, created=events[0].at, active=events[0].at // 1000)
    changes = [project(event) for event in events]
    plan = rules.extended(row, events, links.seals(events), changes)
    await write(link, id, plan)
    await link.run(
        "UPDATE hf.logs SET version = version + 1, doc = $2, until = $3 WHERE id = $1",
        id,
        encode(plan.row),
        until,
    )


async def _ids(link: Link, id: int, events: Sequence[Event]) -> list[str]:
    records = await link.rows(
        "SELECT id FROM hf.events WHERE log = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq",
        id,
        events[0].seq,
        events[-1].seq,
    )
    return [record["id"] for record in records]


async def end_restore(link: Link, key: Key, id: int) -> None:
    """Give the restored log its key."""
    entry = await _restoring(link, id)
    if entry.row.head == entry.shared:
        raise InvalidValue(field="events", problem="is empty", remedy="pass at least one event")
    there = await lookup(link, key)
    if there is not None and there.id == id:
        return  # done, and the reply was lost
    if there is not None:
        raise SessionExists(tenant=key.tenant, session=key.session, thread=key.thread)
    try:
        await link.run(
            "UPDATE hf.logs SET state = $2, tenant = $3, session = $4, thread = $5, until = 0"
            " WHERE id = $1",
            id,
            LIVE,
            key.tenant,
            key.session,
            key.thread,
        )
    except UniqueViolationError as error:
        # Another process gave a log this key at the same moment.
        raise SessionExists(tenant=key.tenant, session=key.session, thread=key.thread) from error
    await save_row(link, id, None, entry.row)


# Erasing, and rebuilding rows


async def erase(
    link: Link, project: Project, key: Key, seqs: Sequence[int], reason: str, fence: Lease | None
) -> dict[str, int]:
    """Replace the data of events; rows are rebuilt, snapshots are dropped."""
    entry = await existing(link, key)
    numbers = rules.check_seqs(entry.row, seqs)
    if fence is not None:
        rules.check_fence(entry.row, entry.lease, fence)
    dropped = 0
    for part, after, upto in await segments(link, entry):
        if some := [seq for seq in numbers if after < seq <= upto]:
            await blank(link, project, part, some, reason)
            dropped += await drop_snapshots(link, part)
    return {"payloads": len(numbers), "snapshots": dropped}


async def blank(
    link: Link,
    project: Project,
    log: int,
    seqs: Sequence[int],
    reason: str,
    *,
    damaged: bool = False,
) -> None:
    """Replace the data of a log's own events with `{"erased": reason}`, and rebuild its row."""
    data = erased(reason)
    records = await link.rows(
        "SELECT seq, id, kind, v, hash, link FROM hf.events"
        " WHERE log = $1 AND seq = ANY ($2::bigint[])",
        log,
        list(seqs),
    )
    hashes = [
        fingerprint(NewEvent(kind=r["kind"], data=data, id=r["id"], v=r["v"])) for r in records
    ]
    await link.run(
        "UPDATE hf.events AS e SET data = $5, hash = n.hash, link = n.link"
        " FROM unnest($2::bigint[], $3::bytea[], $4::bytea[]) AS n (seq, hash, link)"
        " WHERE e.log = $1 AND e.seq = n.seq",
        log,
        [record["seq"] for record in records],
        hashes,
        [links.erased(r["link"], r["hash"], damaged=damaged) for r in records],
        packed(data),
    )
    if await link.value("SELECT state FROM hf.logs WHERE id = $1 FOR UPDATE", log) == LIVE:
        entry = await entry_by_id(link, log)
        await save_row(link, log, entry.row, await projected(link, project, entry))


async def drop_snapshots(link: Link, log: int) -> int:
    """Drop the snapshots of a log and of all its forks; returns how many there were."""
    return await link.run(
        "WITH RECURSIVE family (id) AS (SELECT $1::bigint UNION"
        " SELECT l.id FROM hf.logs AS l JOIN family ON l.base = family.id)"
        " DELETE FROM hf.snapshots AS s USING family WHERE s.log = family.id",
        log,
    )


async def projected(link: Link, project: Project, entry: PostgresLogEntry) -> Row:
    """The row, rebuilt from the log's own events."""
    row = rules.empty_row(entry.row, entry.shared)
    while row.head < entry.row.head:
        events = await own_events(link, entry, row.head)
        if not events:
            break  # numbers are missing, which `verify` reports separately
        row = catalog.apply(row, events, [project(event) for event in events])
    return msgspec.structs.replace(row, link=links.ending(await kept_of(link, entry.id, row.head)))
