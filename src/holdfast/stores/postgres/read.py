"""Reading a log in pages of bounded size. Each event is checked."""

from __future__ import annotations

import msgspec
from asyncpg import Record

from ...errors import LogDamaged
from ...log.events import Event, Key
from ..frames import FRAME, spoiled, unpacked
from ..paging import Page, ReadBounds, dense
from ..rules import APART
from .columns import event_of
from .database import Link
from .log import existing, segments

PAGE_BYTES = 4 << 20


async def read_page(link: Link, key: Key, bounds: ReadBounds) -> Page:
    """Return one page of events, and the error that ended the read, if any."""
    entry = await existing(link, key, bounds.log, lock="")
    after, reverse, inline = bounds.after, bounds.reverse, bounds.inline
    upto = bounds.upto(entry.row.head)
    parts = await segments(link, entry)
    events: list[Event] = []
    damage: LogDamaged | None = None
    for part, low, high in reversed(parts) if reverse else parts:
        first, last = max(low, after), min(high, upto)
        if first >= last:
            continue
        records = await records_of(
            link, part, first, last, bounds.page - len(events), reverse, inline
        )
        for record in records:
            event = readable(record)
            if event is None:
                damage = spoiled(key, event_of(record, record["data"][FRAME:]))
                break
            events.append(event)
        reached = first + 1 if reverse else last
        if damage or not records or records[-1]["seq"] != reached or len(events) >= bounds.page:
            break  # the next segment follows only when this one is read to its end
    return entry.row.log, *dense(key, after, upto, events, damage, reverse=reverse)


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
    """Return some records of a log's own events. Large data ends the page early. Without `inline`,
    the `data` of a large payload is None, and `size` and `sha256` describe the payload. With
    `links`, the stored links are included."""
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


def readable(record: Record) -> Event | None:
    """Return the event of a record, or None if its data was altered."""
    if record["data"] is None:
        stub = {"apart": {"size": record["size"], "sha256": record["sha256"]}}
        return event_of(record, msgspec.json.encode(stub))
    data = unpacked(record["data"])
    return None if data is None else event_of(record, data)
