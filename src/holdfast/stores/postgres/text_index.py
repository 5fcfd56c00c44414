"""The full-text index of a PostgreSQL store, and the logs that changed since it was updated.

`text_tables` has the tables. Deletes and erasures remove their rows by triggers, so the index needs
no steps of its own for them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
from asyncpg import Record
from asyncpg import exceptions as pg
from msgspec.structs import replace

from ...errors import StoreError
from ...log.catalog import Row
from ...log.codec import LARGEST
from ...log.events import Key
from ...log.search import Condition
from ..search import ChangedLogs
from ..search.index import Advance, Candidate, Doc, LogPosition, NoIndex, place_of
from ..sql.tables import LIVE
from .database import CLOCK, FOR_EVER, SLOW, Link, PostgresDatabase
from .text_tables import AGAIN, BUCKETS, EDITION, TABLE_NAMES

T = TypeVar("T")

OVERLAP = 10  # seconds; commits of earlier events may become visible so late
REVIEW_MS = 60_000  # all logs are compared with the index so often, in case one is even later

# The transaction that wrote a log's row: unlike the number of its changes, it is also different
# after a backup was restored.
VERSION = "l.xmin::text::bigint"

_row = msgspec.json.Decoder(Row).decode
_rewinds = msgspec.json.Decoder(tuple[tuple[int, int], ...]).decode
_POSITION = (
    f"SELECT l.id, l.log, {VERSION} AS version, l.doc, e.number, t.id AS tenant_id,"
    " s.name, s.seq, s.link, s.rewinds"
    " FROM unnest($1::text[]) WITH ORDINALITY AS k (log, place)"
    f" JOIN hf.logs AS l ON l.log = k.log AND l.state = {LIVE}"
    f" JOIN hf.search_epochs AS e ON e.bucket = l.id % {BUCKETS}"
    " LEFT JOIN hf.search_logs AS s ON s.log = l.id"
    " LEFT JOIN hf.search_tenants AS t ON t.name = l.tenant ORDER BY k.place"
)
_TENANT = "%"  # in no term
_LOG = "l.log, l.tenant, l.session, l.thread, s.seq, s.link, s.rewinds"


class PostgresTextIndex:
    """A full-text index in the schema of a store."""

    keeps_words = True  # in the inverted index, until it is rebuilt

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._checked = False

    async def _run(
        self, job: Callable[[Link], Awaitable[T]], *, whole: bool = False, within: float = SLOW
    ) -> T:
        try:
            return await self._database.run(job, whole=whole, within=within)
        except StoreError as error:
            if isinstance(error.__cause__, (pg.UndefinedTableError, pg.UndefinedFunctionError)):
                self._checked = False
                raise NoIndex from error
            raise

    # The tables

    async def exists(self) -> bool:
        try:
            edition = await self._run(lambda link: _meta(link, "edition"))
        except NoIndex:
            return False
        return edition == EDITION

    async def create(self) -> bool:
        if self._checked:
            return True
        try:
            if not await self.exists():
                await self._run(_create, whole=True, within=FOR_EVER)
        except StoreError as error:
            if isinstance(error.__cause__, pg.InsufficientPrivilegeError):
                return False
            raise
        self._checked = True
        return True

    async def reset(self) -> None:
        await self._run(lambda link: link.run("SELECT hf.search_reset_1()"), within=FOR_EVER)

    async def optimize(self) -> bool:
        """Rebuild the inverted index, which keeps removed terms. Only its owner may."""
        owns: bool = await self._run(
            lambda link: link.value(
                "SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c"
                " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
                " WHERE n.nspname = $1 AND c.relname = 'search_docs'",
                link.schema,
            )
        )
        if owns:
            for table in TABLE_NAMES:
                await self._database.alone(f"VACUUM hf.{table}")
            await self._database.alone("REINDEX INDEX CONCURRENTLY hf.search_docs_terms")
        return owns

    async def aclose(self) -> None:
        pass  # the store closes the connections

    # Indexing

    async def claim(self, owner: str, seconds: float) -> bool:
        def claim(link: Link) -> Awaitable[int]:
            return link.run(
                f"UPDATE hf.search_meta SET value = $1 || ' ' || (({CLOCK}) + $2::bigint)::text"
                " WHERE name = 'claim' AND (split_part(value, ' ', 1) IN ('', $1)"
                f" OR split_part(value, ' ', 2)::bigint <= ({CLOCK}))",
                owner,
                int(seconds * 1000),
            )

        return bool(await self._run(claim))

    async def mark(self) -> str:
        return await self._run(lambda link: _meta(link, "mark"))

    async def set_mark(self, mark: str, *, was: str) -> None:
        await self._run(
            lambda link: link.run(
                "UPDATE hf.search_meta SET value = $1 WHERE name = 'mark' AND value = $2", mark, was
            )
        )

    async def tenant(self, name: str) -> int:
        async def number(link: Link) -> int:
            sql = "SELECT id FROM hf.search_tenants WHERE name = $1"
            found = await link.value(sql, name)
            while found is None:
                found = await link.value(
                    "INSERT INTO hf.search_tenants (name) VALUES ($1) ON CONFLICT (name) DO NOTHING"
                    " RETURNING id",
                    name,
                ) or await link.value(sql, name)
            return int(found)

        return await self._run(number)

    async def positions(self, rows: Sequence[Row]) -> list[LogPosition]:
        async def positions(link: Link) -> list[LogPosition]:
            found = await link.rows(_POSITION, [row.log for row in rows])
            by_log = {record["log"]: record for record in found}
            # For a log that was deleted meanwhile, nothing is accepted.
            return [_position(row.log, row.key, by_log.get(row.log)) for row in rows]

        return await self._run(positions)

    async def logs(self) -> list[LogPosition]:
        async def logs(link: Link) -> list[LogPosition]:
            found = await link.rows(
                f"SELECT {_LOG} FROM hf.search_logs AS s JOIN hf.logs AS l ON l.id = s.log"
            )
            return [_decoded(record) for record in found]

        return await self._run(logs)

    async def add(self, batch: Sequence[Advance]) -> int:
        return await self._run(_Addition(batch), whole=True)

    # Searching

    async def find(
        self, tenant: str, wanted: Sequence[Condition], below: int, least: int, limit: int
    ) -> list[Candidate]:
        async def find(link: Link) -> list[Candidate]:
            found = await link.rows(
                f"SELECT f.id AS place, f.seq AS number, {_LOG} FROM hf.search_tenants AS t"
                f" CROSS JOIN LATERAL hf.search_1(t.id, replace($2::text, '{_TENANT}', t.id::text)"
                "::tsquery, $3, $4, $5) AS f"
                " JOIN hf.search_logs AS s ON s.log = f.log"
                " JOIN hf.logs AS l ON l.id = s.log AND l.log = s.name"
                " WHERE t.name = $1 ORDER BY f.id DESC",
                tenant,
                _expression(wanted),
                below,
                least,
                limit,
            )
            return [
                Candidate(id=record["place"], seq=record["number"], position=_decoded(record))
                for record in found
            ]

        return await self._run(find)

    # Changes

    async def changes(self, mark: str | None) -> ChangedLogs:
        """Return the logs that differ from the index. Since `mark` these are nearly always those
        that were active recently."""
        return await self._run(lambda link: _changes(link, mark))


class _Addition:
    """Writes index entries in one transaction."""

    def __init__(self, batch: Sequence[Advance]) -> None:
        self._batch = batch

    async def __call__(self, link: Link) -> int:
        names = sorted({one.before.log for one in self._batch})
        # Lock out removals first: what is read after this stays as it is until the commit.
        await link.rows(
            "SELECT 1 FROM hf.search_epochs WHERE bucket IN (SELECT id % $2 FROM hf.logs"
            " WHERE log = ANY ($1)) ORDER BY bucket FOR SHARE",
            names,
            BUCKETS,
        )
        found = {record["log"]: record for record in await link.rows(_POSITION, names)}
        current: dict[str, LogPosition] = {}
        taken: list[Advance] = []
        for one in self._batch:
            log = one.before.log
            position = current.get(log) or _position(log, one.before.key, found.get(log))
            if log in found and position == one.before:
                current[log] = one.after
                taken.append(one)
        docs = [(found[one.after.log], doc) for one in taken for doc in one.docs]
        if docs:
            await _add_docs(link, docs)
            await link.value("SELECT hf.search_flush_1()")
        await _save_positions(link, [(found[log], after) for log, after in current.items()])
        return len(taken)


async def _add_docs(link: Link, docs: Sequence[tuple[Record, Doc]]) -> None:
    """Add index entries. Those that exist already are skipped, because the log is indexed again
    from the start. If another event has the same id, the next free one is used."""
    places = [place_of(doc.at, log["log"], doc.seq) for log, doc in docs]
    todo = list(range(len(docs)))
    while todo:
        some = [docs[n] for n in todo]
        added = await link.rows(
            "INSERT INTO hf.search_docs (tenant, id, log, seq, terms)"
            " SELECT u.tenant, u.id, u.log, u.seq, array_to_tsvector(string_to_array(u.terms, ' '))"
            " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])"
            " AS u (tenant, id, log, seq, terms) ON CONFLICT DO NOTHING RETURNING log, seq",
            [log["tenant_id"] for log, _ in some],
            [places[n] for n in todo],
            [log["id"] for log, _ in some],
            [doc.seq for _, doc in some],
            [doc.terms for _, doc in some],
        )
        if len(added) == len(todo):
            return
        there = await link.rows(
            "SELECT d.log, d.seq FROM unnest($1::bigint[], $2::bigint[]) AS u (log, seq)"
            " JOIN hf.search_docs AS d ON d.log = u.log AND d.seq = u.seq",
            [log["id"] for log, _ in some],
            [doc.seq for _, doc in some],
        )
        known = {tuple(record) for record in there}
        todo = [n for n in todo if (docs[n][0]["id"], docs[n][1].seq) not in known]
        for n in todo:
            places[n] += 1


async def _save_positions(link: Link, logs: Sequence[tuple[Record, LogPosition]]) -> None:
    await link.run(
        "INSERT INTO hf.search_logs (log, name, seq, link, rewinds, version) SELECT * FROM unnest("
        "$1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[])"
        " ON CONFLICT (log) DO UPDATE SET seq = excluded.seq, link = excluded.link,"
        " rewinds = excluded.rewinds, version = excluded.version",
        [record["id"] for record, _ in logs],
        [position.log for _, position in logs],
        [position.seq for _, position in logs],
        [position.link for _, position in logs],
        [msgspec.json.encode(position.rewinds).decode() for _, position in logs],
        # Of a log that has more events, the version stays unknown, so that it counts as changed.
        [
            record["version"] if _row(record["doc"]).head == position.seq else 0
            for record, position in logs
        ],
    )


async def _create(link: Link) -> None:
    """Create the tables anew, in the caller's transaction."""
    await link.run(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"holdfast {link.schema} search"
    )
    there = await link.value("SELECT to_regclass($1)", f'"{link.schema}".search_meta')
    if there is None or await _meta(link, "edition") != EDITION:
        await link.script(AGAIN)


async def _meta(link: Link, name: str) -> str:
    return await link.value("SELECT value FROM hf.search_meta WHERE name = $1", name) or ""


# One row for each log that differs from the index, or one row with the time alone. All logs are
# compared if that was not done for some time, else those that were active since the mark.
_CHANGES = (
    "SELECT k.now, k.newest, c.* FROM"
    f" (SELECT ({CLOCK}) AS now, (SELECT max(active) FROM hf.logs) AS newest) AS k"
    f" LEFT JOIN LATERAL (SELECT l.id, {VERSION} AS version, l.doc, s.name, s.seq,"
    " s.link FROM hf.logs AS l LEFT JOIN hf.search_logs AS s ON s.log = l.id"
    f" WHERE l.active >= CASE WHEN k.now - $1::bigint BETWEEN 0 AND {REVIEW_MS}"
    " THEN $2::bigint ELSE 0 END"
    f" AND l.state = {LIVE} AND (s.version IS DISTINCT FROM {VERSION} OR s.name <> l.log))"
    " AS c ON true"
)


async def _changes(link: Link, mark: str | None) -> ChangedLogs:
    reviewed, since = (int(part) for part in (mark or "0 0").split())
    found = await link.rows(_CHANGES, reviewed, since)
    now, newest = found[0]["now"], found[0]["newest"] or 0
    if not 0 <= now - reviewed <= REVIEW_MS:
        reviewed = now
    rows: list[Row] = []
    same: list[tuple[int, int, int]] = []
    for record in found:
        row = None if record["doc"] is None else _row(record["doc"])
        known = (record["name"], record["seq"], record["link"])
        if row is not None and (row.log, row.head, row.link) == known:
            same.append((record["id"], record["version"], row.head))
        elif row is not None:
            rows.append(row)
    if same:  # for example, only a lease was renewed
        await link.run(
            "UPDATE hf.search_logs AS s SET version = u.version FROM"
            " unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u (log, version, seq)"
            " WHERE s.log = u.log AND s.seq = u.seq",
            *(list(column) for column in zip(*same, strict=True)),
        )
    return ChangedLogs(rows=rows, mark=f"{reviewed} {min(newest, now // 1000) - OVERLAP}")


def _position(log: str, key: Key, record: Record | None) -> LogPosition:
    """Return the position of a log. Without a record, the log was deleted."""
    if record is None:
        return LogPosition(log=log, key=key, epoch="")
    position = LogPosition(log=log, key=key, epoch=str(record["number"]))
    if record["seq"] is None:
        return position
    if record["name"] != log:
        return replace(position, seq=LARGEST)  # of another log with this id: a restored backup
    return replace(
        position, seq=record["seq"], link=record["link"], rewinds=_rewinds(record["rewinds"])
    )


def _decoded(record: Record) -> LogPosition:
    return LogPosition(
        log=record["log"],
        key=Key(record["tenant"], record["session"], record["thread"]),
        seq=record["seq"],
        link=record["link"],
        rewinds=_rewinds(record["rewinds"]),
    )


def _expression(wanted: Sequence[Condition]) -> str:
    """Return the conditions as a `tsquery`, in which `_TENANT` stands for the number of the tenant.
    Terms contain neither quotes nor backslashes."""
    return " & ".join(
        ("!" if one.negative else "") + f"'{_TENANT}:{one.term}'" + (":*" if one.prefix else "")
        for one in wanted
    )
