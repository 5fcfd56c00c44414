"""Reading of a log in pages of limited size. Each event is checked against its hash."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import msgspec
from asyncpg import Record

from ...errors import LogDamaged
from ...log.codec import LARGEST
from ...log.events import Event, Key
from .. import rules
from ..frames import FRAME, spoiled, unpacked
from ..paging import Page, ReadBounds, dense
from ..rules import APART
from .columns import event_of
from .database import Link
from .log import ENTRY, KEYED, PostgresLogEntry, entry_of, existing, segments

PAGE_BYTES = 4 << 20
_READ = ("seq", "id", "kind", "v", "run", "actor", "cause", "at", "data")

Stored: TypeAlias = Record | dict[str, Any]  # an event as stored


async def read_page(link: Link, key: Key, bounds: ReadBounds) -> Page:
    """Return one page of events, and the error that ended the read, if any."""
    if bounds.inline:
        entry, records = await _with_page(link, key, bounds)
    else:
        entry, records = await existing(link, key, bounds.log, lock=""), None
    upto = bounds.upto(entry.row.head)
    if records is None:
        events, damage = await _in_parts(link, key, entry, bounds)
    else:
        events, damage = _read(key, [record for record in records if record["seq"] <= upto])
    return entry.row.log, *dense(key, bounds.after, upto, events, damage, reverse=bounds.reverse)


async def _in_parts(
    link: Link, key: Key, entry: PostgresLogEntry, bounds: ReadBounds
) -> tuple[list[Event], LogDamaged | None]:
    """Return a page of events of a fork, read from its own log and the logs whose events it
    shares."""
    after, reverse, upto = bounds.after, bounds.reverse, bounds.upto(entry.row.head)
    parts = await segments(link, entry)
    events: list[Event] = []
    damage: LogDamaged | None = None
    for part, low, high in reversed(parts) if reverse else parts:
        first, last = max(low, after), min(high, upto)
        if first >= last:
            continue
        records = await records_of(
            link, part, first, last, bounds.page - len(events), reverse, bounds.inline
        )
        some, damage = _read(key, records)
        events += some
        reached = first + 1 if reverse else last
        if damage or not records or records[-1]["seq"] != reached or len(events) >= bounds.page:
            break  # the next segment follows only when this one is read to its end
    return events, damage


async def _with_page(
    link: Link, key: Key, bounds: ReadBounds
) -> tuple[PostgresLogEntry, Sequence[Stored] | None]:
    """Return a log and a page of its events, read by one statement. The page is None if the log is
    a fork, which shares events of other logs."""
    record = await link.row(
        _page_sql("DESC" if bounds.reverse else "ASC"),
        key.tenant,
        key.session,
        key.thread,
        bounds.after,
        LARGEST if bounds.before is None else bounds.before,
        bounds.page,
    )
    entry = rules.existing(key, None if record is None else entry_of(record), bounds.log)
    if record is None or entry.base is not None:
        return entry, None
    columns = [record[f"all_{name}"] or () for name in _READ]
    return entry, [dict(zip(_READ, values, strict=True)) for values in zip(*columns, strict=True)]


@cache
def _page_sql(way: str) -> str:
    return (
        f"SELECT {ENTRY}, page.* FROM hf.logs AS l LEFT JOIN LATERAL"
        f" (SELECT {', '.join(f'array_agg({name}) AS all_{name}' for name in _READ)} FROM"
        " (SELECT *, sum(octet_length(data)) OVER"
        f" (ORDER BY seq {way}) - octet_length(data) AS before FROM"
        "  (SELECT * FROM hf.events WHERE log = l.id AND seq > $4 AND seq < $5"
        f"  ORDER BY seq {way} LIMIT $6) AS few ORDER BY seq {way}) AS sized"
        f" WHERE before < {PAGE_BYTES}) AS page ON l.base IS NULL WHERE {KEYED}"
    )


def _read(key: Key, records: Sequence[Stored]) -> tuple[list[Event], LogDamaged | None]:
    """Return the events of the records before the first damaged one, and the error for the damaged
    event, if any."""
    events: list[Event] = []
    for record in records:
        event = readable(record)
        if event is None:
            return events, spoiled(key, event_of(record, record["data"][FRAME:]))
        events.append(event)
    return events, None


async def records_of(
    link: Link,
    log: int,
    after: int,
    upto: int,
    limit: int,
    reverse: bool,
    inline: bool,
    *,
    links: bool = False,
) -> list[Record]:
    """Return a page of records of a log's own events. Large data ends the page early. Without
    `inline`, the `data` of a large payload is None, and `size` and `sha256` describe the payload.
    With `links`, the stored links are included."""
    way = "DESC" if reverse else "ASC"
    small = f"octet_length(data) <= {APART + FRAME}"
    data, size = "data", "octet_length(data)"
    if not inline:
        data, size = f"CASE WHEN {small} THEN data END", f"least({size}, 200)"
    return await link.rows(
        f"SELECT seq, id, kind, v, run, actor, cause, at, hash,{' link,' if links else ''}"
        f" octet_length(data) - {FRAME} AS size, {data} AS data,"
        f" CASE WHEN NOT {small} AND NOT $5 THEN"
        f" encode(sha256(substring(data FROM {FRAME + 1})), 'hex') END AS sha256"
        f" FROM (SELECT *, sum({size}) OVER (ORDER BY seq {way}) - {size} AS before FROM"
        "  (SELECT * FROM hf.events WHERE log = $1 AND seq > $2 AND seq <= $3"
        f"  ORDER BY seq {way} LIMIT $4) AS few) AS page"
        f" WHERE before < {PAGE_BYTES} ORDER BY seq {way}",
        log,
        after,
        upto,
        limit,
        inline,
    )


def readable(record: Stored) -> Event | None:
    """Return the event of a record, or None if its data does not match its hash."""
    if record["data"] is None:
        stub = {"apart": {"size": record["size"], "sha256": record["sha256"]}}
        return event_of(record, msgspec.json.encode(stub))
    data = unpacked(record["data"])
    return None if data is None else event_of(record, data)
