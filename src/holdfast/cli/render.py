"""Formats rows of sessions, tables, deletion receipts and damage as text. Pure: the current time is
an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
WIDEST, SHORTEST = 40, 12  # maximum width of a column, and minimum width of the last column


def moment(ms: int) -> str:
    """Format a time (ms since the epoch) in UTC, or as a number if it is not a valid date."""
    try:
        return f"{EPOCH + timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%SZ}"
    except OverflowError:
        return f"{ms} ms"


def moment_or(otherwise: str, ms: int | None) -> str:
    """Format a time, or return `otherwise` if there is none."""
    return moment(ms) if ms else otherwise


def ago(ms: int, now: int) -> str:
    """Format the time since a past event in its largest unit, such as `3 h ago`."""
    seconds = max(now - ms, 0) // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def size(count: int) -> str:
    """Format a number of bytes with a suitable unit."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}".replace(".0 ", " ")
    return f"{count} bytes"


def number(count: int, what: str) -> str:
    """Format a count with its noun, in the plural unless it is 1."""
    return f"{count:,} {what if count == 1 else what + 's'}"


def warning(risk: str | None) -> str:
    """Return a label for calls of high risk; empty for other calls."""
    return f" [risk: {risk}]" if risk in ("high", "destructive") else ""


def rows_text(rows: Sequence[Row], *, threads: bool, now: int, width: int) -> Iterator[Text]:
    """Return a table of sessions, or of the threads of one session."""
    shown = [
        {
            "THREAD" if threads else "SESSION": row.thread if threads else row.session,
            "AGENT": row.agent or "",
            "USER": row.user or "",
            "STATE": state(row),
            "EVENTS": f"{row.head:>6,}",
            "LAST": ago(row.last, now),
            "TITLE": row.title or row.first_message or "",
        }
        for row in rows
    ]
    return table_text(shown, width, optional=("EVENTS", "USER", "AGENT", "LAST"))


def table_text(
    rows: Sequence[Mapping[str, str]], width: int, *, optional: Sequence[str] = ()
) -> Iterator[Text]:
    """Return a table with a header, or an empty result if there are no rows. Empty columns are
    omitted, and so are `optional` columns while the table is wider than `width`. Only the last
    column is truncated, so that ids can be copied; without room for it, it is on a line of its own.
    """
    if not rows:
        return
    columns = {name: [name, *(plain(row[name]) for row in rows)] for name in rows[0]}
    _, titles = columns.popitem()
    table = {name: cells for name, cells in columns.items() if any(cells[1:])}
    rooms = {name: min(max(map(cell_len, cells)), WIDEST) + 2 for name, cells in table.items()}
    for name in optional:
        if name in table and sum(rooms.values()) + SHORTEST > width:
            del table[name], rooms[name]
    for at, title in enumerate(titles):
        line = ""
        for name, cells in table.items():
            line += cells[at] + " " * max(rooms[name] - cell_len(cells[at]), 2)
        room = width - cell_len(line)
        below = room < SHORTEST and bool(table)
        line += "" if below else shortened(title, max(room, SHORTEST))
        yield Text(line.rstrip(), style="" if at else "bold")
        if below and at and title:
            yield Text(f"  {shortened(title, max(width - 2, SHORTEST))}")


def shortened(text: str, room: int) -> str:
    """Return the text, truncated to a width."""
    return text if cell_len(text) <= room else set_cell_size(text, room - 1) + "…"


def state(row: Row) -> str:
    """Summarize the state of a session."""
    words = [row.phase]
    if row.run is not None:
        words.append(row.run)
    if row.pending:
        words.append(f"{len(row.pending)} pending")
    if row.sealed is not None:
        words.append("moved")
    return ", ".join(words)


def row_text(row: Row, now: int) -> Iterator[Text]:
    """Return the fields of a row that are set, one per line."""
    yield from facts_text(_facts(row, now))
    for item in pending_items(row):
        title = f" {item.title}" if item.title else ""
        expires = f", expires {moment(item.expires)}" if item.expires is not None else ""
        whom = f", for {item.assignee}" if item.assignee else ""
        since = f"since event {item.seq}{whom}{expires}"
        yield fact("pending", f"{item.what} {item.id}{title} ({since})")


def _facts(row: Row, now: int) -> dict[str, Any]:
    names = ("title", "agent", "user", "workspace")
    return {
        "session": row.session,
        "thread": row.thread,
        "tenant": row.tenant if row.tenant != "main" else None,
        **{name: getattr(row, name) for name in names},
        "state": state(row),
        "moved to": row.sealed,
        "parent": f"{row.parent.thread} at event {row.parent.at}" if row.parent else None,
        "events": f"{row.head:,} ({size(row.bytes)})",
        "created": moment(row.created),
        "last": f"{moment(row.last)} ({ago(row.last, now)})",
        "due": moment(row.due) if row.due is not None else None,
        "stale at": moment(row.stale_at * 1000) if row.stale_at is not None else None,
        "ttl": f"{row.ttl} s" if row.ttl is not None else None,
        "expiry": f"{row.expiry} s" if row.expiry is not None else None,
        "pinned": row.pinned,
        "hold": row.hold,
        "labels": ", ".join(sorted(row.labels)),
        "metadata": row.metadata,
        "surfaces": ", ".join(map(surface_text, row.surfaces)),
        **{name: getattr(row, name) for name in ("counts", "usage", "log")},
    }


def surface_text(name: str) -> str:
    """Format the key of a surface in a row."""
    try:
        return " ".join(msgspec.json.decode(name, type=tuple[str, str]))
    except msgspec.MsgspecError:
        return name


def facts_text(facts: Mapping[str, Any]) -> Iterator[Text]:
    """Format names and values, one per line; a value that is a list gets a line per item. Names
    without a value are omitted.
    """
    for name, value in facts.items():
        for one in value if isinstance(value, list) else [value]:
            if one not in (None, "", {}, False):
                yield fact(name, one if isinstance(one, str) else json_text(one))


def fact(name: str, value: str) -> Text:
    """Return a line with a name and a value."""
    return Text.assemble((f"{name:<12}", "bold"), plain(value))


def damage_text(damage: Damage) -> Text:
    """Format one finding of `verify`."""
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
    """Format a receipt: what was removed, what remains, and where."""
    removed = receipt.removed.items()
    counts = [number(count, sort.removesuffix("s")) for sort, count in removed if count]
    yield Text(plain(f"{verb}: {', '.join(counts) or 'nothing'}"))
    for left in receipt.remains:
        yield Text.assemble(
            ("remains: ", "yellow"), plain(f"{left.where}: {left.what}; {left.remedy}")
        )
