"""Appending to a log, looking up events, and the log's row.

`rules.extend` decides an append based on this process's copy of the log; the database checks that
the copy is current (`append_function.py`). After several conflicts with other writers of the same
log, the append locks the log before it decides, so that every writer succeeds eventually.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from asyncpg import Record
from msgspec.structs import astuple

from ...errors import HoldfastError
from ...log.catalog import Project, Row
from ...log.events import Key
from .. import rules
from ..frames import packed
from ..keyed_locks import KeyedLocks
from ..rules import AppendRequest, Extension, LeaseState
from ..sql.tables import LIVE, Segment
from .calls import Calls
from .columns import columns, dropped_drafts, encode, listed
from .database import SLOW, Link, PostgresDatabase

HEADS = 1_024  # logs in the cache
LARGE = 1 << 20  # bytes above which an append gets more time
MISSES = 2  # conflicts before an append waits for the lock

_row = msgspec.json.Decoder(Row).decode

ENTRY = "id, version, base, shared, token, owner, since, until, renewed, mark, doc"
KEYED = "tenant = $1 AND session = $2 AND thread = $3"


class PostgresLogEntry(NamedTuple):
    """A log as it is stored in the table. `version` counts the changes of its row and its lease."""

    id: int
    version: int
    base: int | None
    shared: int
    lease: LeaseState
    row: Row


class KnownHeads:
    """A cache of the logs that this process wrote to recently, with a queue of writers for each. An
    entry may be outdated; the version in the database shows this when the entry is used."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, PostgresLogEntry] = OrderedDict()
        self.turns = KeyedLocks[Key]()  # held by the one append that is in progress in a log

    def get(self, key: Key) -> PostgresLogEntry | None:
        return self._known.get(key)

    def put(self, key: Key, entry: PostgresLogEntry) -> None:
        self._known[key] = entry
        self._known.move_to_end(key)
        if len(self._known) > HEADS:
            self._known.popitem(last=False)

    def drop(self, key: Key) -> None:
        self._known.pop(key, None)


# Looking up


async def lookup(link: Link, key: Key, *, lock: str = "") -> PostgresLogEntry | None:
    """Return the log with this key, if it exists."""
    record = await link.row(
        f"SELECT {ENTRY} FROM hf.logs WHERE {KEYED} {lock}", key.tenant, key.session, key.thread
    )
    return None if record is None else entry_of(record)


async def existing(
    link: Link, key: Key, log: str | None = None, *, lock: str = "FOR UPDATE"
) -> PostgresLogEntry:
    """Return the log with this key. Raises an error if the log does not exist, or is not the
    incarnation that the caller expects."""
    return rules.existing(key, await lookup(link, key, lock=lock), log)


async def entry_by_id(link: Link, id: int) -> PostgresLogEntry:
    """Return the log with this id, in any state. The log must exist."""
    record = await link.row(f"SELECT {ENTRY} FROM hf.logs WHERE id = $1", id)
    assert record is not None
    return entry_of(record)


def entry_of(record: Record) -> PostgresLogEntry:
    lease = LeaseState(
        record["token"],
        record["owner"],
        record["since"],
        record["until"],
        record["renewed"],
        record["mark"],
    )
    return PostgresLogEntry(
        record["id"],
        record["version"],
        record["base"],
        record["shared"],
        lease,
        _row(record["doc"]),
    )


async def segments(link: Link, entry: PostgresLogEntry) -> list[Segment]:
    """Return the ranges of event numbers of a log, each with the log that stores the events, as
    (log, after, upto), oldest first."""
    found = [(entry.id, entry.shared, entry.row.head)]
    if entry.base is not None:
        records = await link.rows(
            "WITH RECURSIVE part AS (SELECT id, base, shared, $2::bigint AS upto FROM hf.logs"
            " WHERE id = $1 UNION ALL SELECT l.id, l.base, l.shared, part.shared"
            " FROM part JOIN hf.logs AS l ON l.id = part.base)"
            " SELECT id, shared, upto FROM part",
            entry.base,
            entry.shared,
        )
        found += [(id, after, upto) for id, after, upto in records]
    return sorted(found, key=lambda part: part[1])


async def known_ids(link: Link, entry: PostgresLogEntry, ids: Sequence[str]) -> dict[str, int]:
    """Return the event number of each id that is found in the log, including shared events. Each id
    is one seek in the index of ids; a plan that reads whole logs would need a sort."""
    parts = await segments(link, entry)
    records = await link.rows(
        "SELECT e.id, e.seq FROM unnest($1::bigint[], $2::bigint[]) AS part (log, upto)"
        " CROSS JOIN unnest($3::text[]) AS i (id) CROSS JOIN LATERAL"
        " (SELECT e.id, e.seq FROM hf.events AS e WHERE e.log = part.log AND e.id >= i.id"
        " ORDER BY e.id LIMIT 1) AS e WHERE e.id = i.id AND e.seq <= part.upto",
        [id for id, _, _ in parts],
        [upto for _, _, upto in parts],
        list(ids),
    )
    return {record["id"]: record["seq"] for record in records}


async def seqs(
    link: Link, key: Key, ids: Sequence[str], *, log: str | None = None
) -> dict[str, int]:
    """Return the event number of each id that is found in the log with this key."""
    return await known_ids(link, await existing(link, key, log, lock=""), ids)


# Appending


Call = Callable[[list[Any]], Awaitable[Record]]


class PostgresAppend:
    """One append operation, including its retries."""

    def __init__(
        self,
        database: PostgresDatabase,
        calls: Calls,
        heads: KnownHeads,
        project: Project,
        clock: Callable[[], int],
        request: AppendRequest,
    ) -> None:
        self._database = database
        self._calls = calls
        self._heads = heads
        self._project = project
        self._clock = clock
        self._request = request
        self._key = request.key
        self._within = SLOW if request.size > LARGE else None
        self._entry: PostgresLogEntry | None = None
        self._known: dict[str, int] = {}
        self._looked = False  # whether `_entry` and `_known` were read from the database
        self.version: tuple[int, int] | None = None  # id and version of the log that was written

    async def __call__(self) -> Extension:
        async with self._heads.turns.of(self._key):
            self._entry = self._heads.get(self._key)
            try:
                for _ in range(MISSES + 1):
                    if (done := await self._try(self._called)) is not None:
                        return done
                return await self._database.run(self._in_turn, within=self._within)
            except BaseException as error:
                if not (self._looked and isinstance(error, HoldfastError)):
                    self._heads.drop(self._key)
                raise

    def _called(self, values: list[Any]) -> Awaitable[Record]:
        return self._calls.call(self._key, values, self._within)

    async def _in_turn(self, link: Link) -> Extension:
        """Append in one transaction that locks the log against other writers."""
        self._entry, self._known, self._looked = None, {}, False
        for _ in range(3):
            if (done := await self._try(lambda values: link.call(APPEND, *values))) is not None:
                return done
        raise AssertionError("the log changed while it was locked")

    async def _try(self, call: Call) -> Extension | None:
        """Append if the cached log is current. Otherwise update the cache and return None."""
        now = self._clock()
        plan = self._decided(now)
        if plan is not None and not plan.fresh:
            return plan
        began = time.monotonic()
        answer = await call(self._values(plan, now))
        self._database.hear_clock(began, answer["clock"])
        if answer["status"] == WRITTEN:
            assert plan is not None
            self._written(answer, plan)
            return plan
        self._looked = answer["status"] == LOOKED
        self._entry = entry_of(answer) if self._looked else None
        if self._entry is not None:
            self._heads.put(self._key, self._entry)
        known = zip(answer["known_ids"] or (), answer["known_seqs"] or (), strict=True)
        self._known = dict(known)
        if not self._looked and not self._request.begins:
            rules.found(self._key, None)
        return None

    def _decided(self, now: int) -> Extension | None:
        """Decide the append based on the cached log. Returns None if the log must be read first,
        because it is not cached, or because the cached log leads to a rejection and may be
        outdated."""
        entry = self._entry
        if entry is None and not self._request.begins:
            return None
        row = entry.row if entry else rules.new_row(self._key, now)
        lease = entry.lease if entry else LeaseState()
        try:
            rules.found(self._key, row, self._request.log)
            return self._request.decide(row, lease, self._known, project=self._project, now=now)
        except HoldfastError:
            if self._looked or entry is None:
                raise
            return None

    def _values(self, plan: Extension | None, now: int) -> list[Any]:
        """Return the arguments of the database function. If `plan` is None, the function only reads
        the log."""
        key = [self._key.tenant, self._key.session, self._key.thread]
        if plan is None:
            return [*key, None, None, None, self._request.ids, *[None] * (_ARGUMENTS - 7)]
        entry, fresh, row = self._entry, plan.fresh, plan.row
        known = [None, None, row.log] if entry is None else [entry.id, entry.version, None]
        return [
            *key,
            *known,
            [event.id for event in fresh],
            fresh[0].seq,
            now,
            [event.kind for event in fresh],
            [event.v for event in fresh],
            _any([event.run for event in fresh]),
            _any([event.actor for event in fresh]),
            _any([event.cause for event in fresh]),
            plan.hashes,
            [packed(event.data) for event in fresh],
            plan.links,
            *columns(row),
            encode(row),
            *listed(entry.row if entry else None, row),
            dropped_drafts(plan.changes),
            *(_UNCHANGED if plan.lease_state is None else astuple(plan.lease_state)),
        ]

    def _written(self, answer: Record, plan: Extension) -> None:
        entry = self._entry
        base, shared = (entry.base, entry.shared) if entry else (None, 0)
        lease = plan.lease_state or (entry.lease if entry else LeaseState())
        left = PostgresLogEntry(answer["id"], answer["version"], base, shared, lease, plan.row)
        self._heads.put(self._key, left)
        self.version = left.id, left.version


def _any(column: list[str | None]) -> list[str | None] | None:
    """Return the column, or None if it has no values: `unnest` then fills it with NULL."""
    return column if any(column) else None


_UNCHANGED = [None] * len(LeaseState.__struct_fields__)
_ARGUMENTS = 35 + len(_UNCHANGED)
WRITTEN, LOOKED, NONE = 0, 1, 2  # values of `status` in the function's result
APPEND = f"SELECT * FROM hf.append_3({', '.join(f'${n}' for n in range(1, _ARGUMENTS + 1))})"


# Rows


async def begin(
    link: Link, row: Row, *, base: int | None, shared: int, state: int, until: int = 0
) -> int | None:
    """Create an empty log. Returns None if its key is taken. A log that is being restored has no
    key yet."""
    key = (row.tenant, row.session, row.thread) if state == LIVE else (None, None, None)
    id: int | None = await link.value(
        "INSERT INTO hf.logs (log, state, version, tenant, session, thread, base, shared, token,"
        ' since, until, "user", workspace, agent, phase, run, created, active, stale_at, wake, doc)'
        " VALUES ($1, $2, 1, $3, $4, $5, $6, $7, 0, 0, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
        " $17, $18) ON CONFLICT (tenant, session, thread) DO NOTHING RETURNING id",
        row.log,
        state,
        *key,
        base,
        shared,
        until,
        *columns(row),
        encode(row),
    )
    return id


async def write(link: Link, id: int, plan: Extension) -> None:
    """Append events to a log that the caller's transaction has locked."""
    events = plan.fresh
    await link.run(
        "INSERT INTO hf.events (log, seq, id, kind, v, run, actor, cause, at, hash, data, link)"
        " SELECT $1, e.* FROM unnest($2::bigint[], $3::text[], $4::text[], $5::integer[],"
        " $6::text[], $7::text[], $8::text[], $9::bigint[], $10::bytea[], $11::bytea[],"
        " $12::bytea[]) AS e",
        id,
        [event.seq for event in events],
        [event.id for event in events],
        [event.kind for event in events],
        [event.v for event in events],
        [event.run for event in events],
        [event.actor for event in events],
        [event.cause for event in events],
        [event.at for event in events],
        plan.hashes,
        [packed(event.data) for event in events],
        plan.links,
    )


async def save_row(link: Link, id: int, old: Row | None, new: Row) -> None:
    """Replace the row of a log. `old` is None if the log is not listed yet."""
    await link.run(
        'UPDATE hf.logs SET version = version + 1, "user" = $2, workspace = $3, agent = $4,'
        " phase = $5, run = $6, created = $7, active = $8, stale_at = $9, wake = $10, doc = $11"
        " WHERE id = $1",
        id,
        *columns(new),
        encode(new),
    )
    terms, *items = listed(old, new)
    if terms is not None or old is None:
        await link.run("DELETE FROM hf.terms WHERE log = $1", id)
        await link.run(
            "INSERT INTO hf.terms (tenant, term, active, log)"
            " SELECT $2, term, $3, $1 FROM unnest($4::bytea[]) AS t (term)",
            id,
            new.tenant,
            new.active,
            terms or [],
        )
    if items[0] is not None or old is None:
        await link.run("DELETE FROM hf.pending WHERE log = $1", id)
        await link.run(
            "INSERT INTO hf.pending (log, tenant, session, id, what, assignee, at, seq, item)"
            " SELECT $1, $2, $3, i.* FROM unnest($4::text[], $5::text[], $6::text[],"
            " $7::bigint[], $8::bigint[], $9::bytea[]) AS i",
            id,
            new.tenant,
            new.session,
            *[column or [] for column in items],
        )
