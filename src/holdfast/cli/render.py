"""Rows, receipts and damage as text for people. Pure, but for the clock it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ..log.catalog import Row, pending_items
from ..stores.port import Damage
from ..values.records import Receipt
from .output import json_text, plain

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WIDEST, SHORTEST = 40, 12  # columns that an id is given, and that a title is left


def moment(ms: int) -> str:
    """A time of the log: UTC to the second, or the number itself when no calendar has it."""
    try:
        return f"{EPOCH + timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%SZ}"
    except OverflowError:
        return f"{ms} ms"


def ago(ms: int, now: int) -> str:
    """How long ago, roughly."""
    seconds = max(now - ms, 0) // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def size(count: int) -> str:
    """A number of bytes, in a unit that reads well."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}".replace(".0 ", " ")
    return f"{count} bytes"


def number(count: int, what: str) -> str:
    """A count with its noun, which takes an s unless it is one."""
    return f"{count:,} {what if count == 1 else what + 's'}"


def warning(risk: str | None) -> str:
    """What is said of a call that could do much harm; of others, nothing."""
    return f" [risk: {risk}]" if risk in ("high", "destructive") else ""


def rows_text(rows: Sequence[Row], *, threads: bool, now: int, width: int) -> Iterator[Text]:
    """A list of sessions, or of the threads of one, in columns.

    Ids are never cut or folded, so that they can be copied; titles get the room that is left.
    """
    columns = {
        "THREAD" if threads else "SESSION": [
            row.thread if threads else row.session for row in rows
        ],
        "AGENT": [row.agent or "" for row in rows],
        "USER": [row.user or "" for row in rows],
        "STATE": [state(row) for row in rows],
        "EVENTS": [f"{row.head:>6,}" for row in rows],
        "LAST": [ago(row.last, now) for row in rows],
    }
    table = [[name, *map(plain, cells)] for name, cells in columns.items() if any(cells)]
    rooms = [min(max(map(cell_len, column)), WIDEST) for column in table]
    titles = ["TITLE", *(plain(row.title or row.first_message or "") for row in rows)]
    for at, (cells, title) in enumerate(zip(zip(*table, strict=True), titles, strict=True)):
        line = "".join(
            cell + " " * max(room - cell_len(cell), 0) + "  "
            for cell, room in zip(cells, rooms, strict=True)
        )
        line += shortened(title, max(width - cell_len(line), SHORTEST))
        yield Text(line.rstrip(), style="" if at else "bold")


def shortened(text: str, room: int) -> str:
    """The text, or as much of it as fits into so many columns."""
    return text if cell_len(text) <= room else set_cell_size(text, room - 1) + "…"


def state(row: Row) -> str:
    """Where a session stands, in a few words."""
    words = [row.phase]
    if row.run is not None:
        words.append(row.run)
    if row.pending:
        words.append(f"{len(row.pending)} pending")
    if row.sealed is not None:
        words.append("moved")
    return ", ".join(words)


def row_text(row: Row, now: int) -> Iterator[Text]:
    """All that a row says, one fact a line; what is not set is left out."""
    for name, value in _facts(row, now):
        if value not in (None, "", {}, False):
            yield fact(name, value if isinstance(value, str) else json_text(value))
    for item in pending_items(row):
        title = f" {item.title}" if item.title else ""
        expires = f", expires {moment(item.expires)}" if item.expires is not None else ""
        whom = f", for {item.assignee}" if item.assignee else ""
        since = f"since event {item.seq}{whom}{expires}"
        yield fact("pending", f"{item.what} {item.id}{title} ({since})")


def _facts(row: Row, now: int) -> Iterator[tuple[str, Any]]:
    yield "session", row.session
    yield "thread", row.thread
    yield "tenant", row.tenant if row.tenant != "main" else None
    yield "title", row.title
    yield "agent", row.agent
    yield "user", row.user
    yield "workspace", row.workspace
    yield "state", state(row)
    yield "moved to", row.sealed
    yield "parent", f"{row.parent.thread} at event {row.parent.at}" if row.parent else None
    yield "events", f"{row.head:,} ({size(row.bytes)})"
    yield "created", moment(row.created)
    yield "last", f"{moment(row.last)} ({ago(row.last, now)})"
    yield "due", moment(row.due) if row.due is not None else None
    yield "stale at", moment(row.stale_at * 1000) if row.stale_at is not None else None
    yield "ttl", f"{row.ttl} s" if row.ttl is not None else None
    yield "expiry", f"{row.expiry} s" if row.expiry is not None else None
    yield "pinned", row.pinned
    yield "hold", row.hold
    yield "labels", ", ".join(sorted(row.labels))
    yield "metadata", row.metadata
    yield "surfaces", ", ".join(map(surface_text, row.surfaces))
    yield "counts", row.counts
    yield "usage", row.usage
    yield "log", row.log


def surface_text(name: str) -> str:
    """A surface as a row names it, for people."""
    try:
        return " ".join(msgspec.json.decode(name, type=tuple[str, str]))
    except msgspec.MsgspecError:
        return name


def fact(name: str, value: str) -> Text:
    """A line with a name and a value."""
    return Text.assemble((f"{name:<12}", "bold"), plain(value))


def damage_text(damage: Damage) -> Text:
    """One finding of `verify`."""
    where = "the store"
    if damage.key is not None:
        where = f"{damage.key.session} / {damage.key.thread}"
        if damage.key.tenant != "main":
            where += f" (tenant {damage.key.tenant})"
    if damage.seq is not None:
        where += f" event {damage.seq}"
    mark = ("repaired ", "green") if damage.repaired else ("damaged  ", "red")
    if damage.problem == "unlinked":
        mark = ("note     ", "yellow")
    return Text.assemble(
        mark, (plain(where), "cyan"), plain(f": {damage.problem}, {damage.detail}")
    )


def receipt_text(receipt: Receipt, verb: str = "removed") -> Iterator[Text]:
    """What a removal did, and what it could not reach."""
    removed = receipt.removed.items()
    counts = [number(count, sort.removesuffix("s")) for sort, count in removed if count]
    yield Text(plain(f"{verb}: {', '.join(counts) or 'nothing'}"))
    for left in receipt.remains:
        yield Text.assemble(
            ("remains: ", "yellow"), plain(f"{left.where}: {left.what}; {left.remedy}")
        )
