"""Verification of one log: numbers, hashes, links, row and claims. All stores share it.

Each store implements `LogCheck`, and repairs the problems that `lost` and `has_wrong_row` return.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from ..log import catalog
from ..log.catalog import Row
from ..log.codec import fingerprint
from ..log.events import Event, Key, Scope
from .hash_chain import LinkWalk
from .port import Damage

ALTERED = "its data does not match its hash"


class StoredEvent(NamedTuple):
    """An event with its stored hash and link. If the data cannot be read, `problem` says why, and
    the data is null."""

    event: Event
    hash: bytes
    link: bytes | None
    problem: str | None = None


class LogRange(NamedTuple):
    """The events with after < seq <= upto, in the log that stores them. `deleted` is the
    incarnation of that log if the log was deleted while a fork still shares its events."""

    log: Any
    after: int
    upto: int
    deleted: str | None = None


class LogCheck(Protocol):
    """The interface through which `check_log` reads one log."""

    @property
    def row(self) -> Row: ...

    @property
    def lossy(self) -> bool:
        """Whether this store replaces lost events with placeholders."""
        ...

    async def parts(self) -> list[LogRange]:
        """Return the range of the log's own events, and the ranges of events that it shares with
        deleted logs. Other shared events are checked with the log that stores them."""
        ...

    async def left(self) -> bytes | None:
        """Return the bytes stored with the event at which the log was forked from its parent, which
        contain its link."""
        ...

    async def events(self, part: LogRange, after: int) -> Sequence[StoredEvent]:
        """Return some events of a range after a number, in order. Returns an empty list if there
        are none."""
        ...

    async def rebuilt(self) -> Row | None:
        """Return the row that results from the log's events, if it can be computed."""
        ...

    async def is_indexed(self, row: Row) -> bool:
        """Return whether the indexes that `find` and `pending` use agree with the row."""
        ...

    async def claimed(self, tenant: str, name: str) -> Scope | None:
        """Return the session that holds a name; None if it is not claimed."""
        ...


async def check_log(log: LogCheck) -> list[Damage]:
    """Check one log with its row and its claims, and return the problems."""
    found: list[Damage] = []
    for part in await log.parts():
        own = part.deleted is None
        left = await log.left() if own else None
        walk = LinkWalk(log.row, part.after, left, deleted=part.deleted, lossy=log.lossy)
        found += await _check_events(log, part, walk)
        found += walk.end() if own else ()
    if not lost(found):
        found += await _check_row(log)
    return found + await _check_claims(log)


async def _check_events(log: LogCheck, part: LogRange, walk: LinkWalk) -> list[Damage]:
    key, seq = log.row.key, part.after
    found: list[Damage] = []
    while seq < part.upto:
        events = await log.events(part, seq)
        for event, hash, link, problem in events:
            if event.seq != seq + 1:
                found.append(_missing(key, seq + 1, event.seq - 1))
                walk.miss()
            seq = event.seq
            if problem is None and fingerprint(event) == hash:
                found += walk.look(event, hash, link)
            else:
                walk.skip(link)
                detail = problem or ALTERED
                found.append(Damage(problem="unreadable", detail=detail, key=key, seq=seq))
        if not events:
            found.append(_missing(key, seq + 1, part.upto))
            walk.miss()
            break
    return found


def _missing(key: Key, seq: int, upto: int) -> Damage:
    return Damage(problem="missing", detail=f"up to event {upto}", key=key, seq=seq)


async def _check_row(log: LogCheck) -> list[Damage]:
    row = await log.rebuilt()
    if row is None:
        return []
    if not catalog.agrees(log.row, row):
        detail = "does not match its log"
    elif not await log.is_indexed(row):
        detail = "the index entries of the row do not match the row"
    else:
        return []
    return [Damage(problem="row", detail=detail, key=log.row.key)]


async def _check_claims(log: LogCheck) -> list[Damage]:
    key = log.row.key
    return [
        Damage(problem="claim", detail=f"surface {name} is not claimed", key=key)
        for name in catalog.bound(log.row)
        if await log.claimed(key.tenant, catalog.SURFACE_CLAIM + name) != key.scope
    ]


# Repairing


def lost(found: Sequence[Damage]) -> list[int]:
    """Return the numbers of the unreadable events, whose data a repair erases."""
    return [damage.seq for damage in found if damage.problem == "unreadable" and damage.seq]


def has_wrong_row(found: Sequence[Damage]) -> bool:
    """Return whether the row must be rebuilt: it differs from its log, or events are erased."""
    return any(damage.problem in ("unreadable", "row") for damage in found)


def repaired(found: Sequence[Damage]) -> list[Damage]:
    """Return the problems, with those that a repair fixes marked as repaired."""
    return [replace(damage, repaired=damage.problem in ("unreadable", "row")) for damage in found]
