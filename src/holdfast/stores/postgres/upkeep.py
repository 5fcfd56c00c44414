"""Verification: recompute hashes, links, numbers, rows and claims, log by log."""

from __future__ import annotations

import msgspec

from ...log import catalog
from ...log.catalog import Project
from ...log.codec import fingerprint
from ...log.events import Key, Scope
from ..links import LinkWalk
from ..paging import PAGE_EVENTS
from ..port import Damage
from .columns import digests
from .database import Link
from .history import blank, projected
from .log import PostgresLogEntry, entry_by_id, kept_of, save_row, segments
from .read import readable, records_of
from .records import claimed
from .schema import DEAD, LIVE


async def logs_of(link: Link, target: Scope | Key | None, after: int) -> list[int]:
    """Some of the logs to verify, in order of their ids."""
    names = [getattr(target, name, None) for name in ("tenant", "session", "thread")]
    found = await link.rows(
        f"SELECT id FROM hf.logs WHERE state = {LIVE} AND id > $1"
        " AND ($2::text IS NULL OR tenant = $2) AND ($3::text IS NULL OR session = $3)"
        " AND ($4::text IS NULL OR thread = $4) ORDER BY id LIMIT 1000",
        after,
        *names,
    )
    return [record["id"] for record in found]


async def check_log(link: Link, project: Project, id: int) -> list[Damage]:
    """The problems of one log, its row and its claims."""
    state = await link.value("SELECT state FROM hf.logs WHERE id = $1 FOR SHARE", id)
    if state != LIVE:
        return []  # deleted meanwhile
    entry = await entry_by_id(link, id, lock="")
    found: list[Damage] = []
    for part, after, upto in await segments(link, entry):
        # Events that a deleted log left to its forks are checked with them, all others with their
        # own log.
        own = part == id
        if own or await _is_dead(link, part):
            left = await _left_at(link, entry) if own else None
            walk = LinkWalk(
                entry.row, after, left, deleted=None if own else await _name(link, part)
            )
            found += await _check_events(link, entry.row.key, part, after, upto, walk)
            found += walk.end() if own else ()
    if not any(damage.problem == "unreadable" for damage in found):
        found += await _check_row(link, project, entry)
    return found + await _check_claims(link, entry)


async def _name(link: Link, id: int) -> str:
    return str(await link.value("SELECT log FROM hf.logs WHERE id = $1", id))


async def _is_dead(link: Link, id: int) -> bool:
    state = await link.value("SELECT state FROM hf.logs WHERE id = $1", id)
    return bool(state == DEAD)


async def _left_at(link: Link, entry: PostgresLogEntry) -> bytes | None:
    """What is stored with the event at which a fork left its parent."""
    return b"" if entry.base is None else await kept_of(link, entry.base, entry.shared)


async def _check_events(
    link: Link, key: Key, log: int, seq: int, upto: int, walk: LinkWalk
) -> list[Damage]:
    found = []
    while seq < upto:
        records = await records_of(link, log, seq, upto, PAGE_EVENTS, False, True, links=True)
        if not records:
            found.append(Damage(problem="missing", detail=f"up to {upto}", key=key, seq=seq + 1))
            walk.miss()
            break
        for record in records:
            if record["seq"] != seq + 1:
                detail = f"up to {record['seq'] - 1}"
                found.append(Damage(problem="missing", detail=detail, key=key, seq=seq + 1))
                walk.miss()
            seq = record["seq"]
            event = readable(record)
            if event is None or fingerprint(event) != record["hash"]:
                detail = "differs from its hash"
                found.append(Damage(problem="unreadable", detail=detail, key=key, seq=seq))
                walk.skip(record["link"])
            else:
                found += walk.look(event, record["hash"], record["link"])
    return found


async def _check_row(link: Link, project: Project, entry: PostgresLogEntry) -> list[Damage]:
    row = await projected(link, project, entry)
    if not catalog.agrees(entry.row, row):
        return [Damage(problem="row", detail="differs from its log", key=entry.row.key)]
    terms = await link.rows("SELECT term FROM hf.terms WHERE log = $1 ORDER BY term", entry.id)
    items = await link.rows("SELECT id FROM hf.pending WHERE log = $1", entry.id)
    # For a moved log, entries of an earlier version are still there.
    waits = row.sealed is not None or {id for (id,) in items} == set(row.pending)
    if [term for (term,) in terms] != digests(row) or not waits:
        return [
            Damage(
                problem="row", detail="the index of the row differs from the row", key=entry.row.key
            )
        ]
    return []


async def _check_claims(link: Link, entry: PostgresLogEntry) -> list[Damage]:
    key = entry.row.key
    return [
        Damage(problem="claim", detail=f"surface {name} is not claimed", key=key)
        for name in catalog.bound(entry.row)
        if await claimed(link, key.tenant, catalog.SURFACE_CLAIM + name) != key.scope
    ]


async def repair(link: Link, project: Project, id: int) -> list[Damage]:
    """Repair what can be repaired: damaged events are erased, rows rebuilt. The damage is found
    here, in the transaction that repairs it."""
    if await link.value("SELECT state FROM hf.logs WHERE id = $1 FOR UPDATE", id) != LIVE:
        return []  # deleted meanwhile
    found = await check_log(link, project, id)
    lost = [damage.seq for damage in found if damage.problem == "unreadable" and damage.seq]
    for part, after, upto in await segments(link, await entry_by_id(link, id)):
        if some := [seq for seq in lost if after < seq <= upto]:
            await blank(link, project, part, some, "damaged", damaged=True)
    if any(damage.problem in ("unreadable", "row") for damage in found):
        await link.run("DELETE FROM hf.snapshots WHERE log = $1", id)
        entry = await entry_by_id(link, id)
        await save_row(link, id, None, await projected(link, project, entry))
    return [
        msgspec.structs.replace(damage, repaired=damage.problem in ("unreadable", "row"))
        for damage in found
    ]
