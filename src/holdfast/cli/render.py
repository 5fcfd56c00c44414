"""Rows, receipts and damage as text for people. Pure, but for the clock it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.table import Table
from rich.text import Text

from ..catalog import Row, pending_items
from ..store import Damage, Receipt
from .output import json_text, plain

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    if count < 1_000:
        return f"{count} bytes"
    value, unit = float(count), ""
    for unit in ("kB", "MB", "GB"):
        value /= 1_000
        if value < 1_000:
            break
    return f"{value:.1f} {unit}"


def number(count: int, what: str) -> str:
    """A count with its noun, which takes an s unless it is one."""
    return f"{count:,} {what if count == 1 else what + 's'}"


def grid() -> Table:
    """A table without lines, whose cells can be copied."""
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def rows_table(rows: Sequence[Row], *, threads: bool, now: int) -> Table:
    """A list of sessions, or of the threads of one."""
    table = grid()
    table.add_column("THREAD" if threads else "SESSION", overflow="fold", style="cyan")
    for name in ("AGENT", "USER", "STATE"):
        table.add_column(name, overflow="fold")
    table.add_column("EVENTS", justify="right", no_wrap=True)
    table.add_column("LAST", no_wrap=True)
    table.add_column("TITLE", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        cells = (
            row.thread if threads else row.session,
            row.agent or "-",
            row.user or "-",
            state(row),
            f"{row.head:,}",
            ago(row.last, now),
            row.title or row.first_message or "",
        )
        table.add_row(*(Text(plain(cell)) for cell in cells))
    return table


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
    yield "pinned", row.pinned
    yield "hold", row.hold
    yield "labels", ", ".join(sorted(row.labels))
    yield "metadata", row.metadata
    yield "surfaces", row.surfaces
    yield "counts", row.counts
    yield "usage", row.usage
    yield "log", row.log


def fact(name: str, value: str) -> Text:
    """A line with a name and a value."""
    return Text.assemble((f"{name:<10}", "bold"), plain(value))


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
    return Text.assemble(mark, (plain(where), "cyan"), plain(f": {damage.problem}, {damage.detail}"))


def receipt_text(receipt: Receipt, verb: str = "removed") -> Iterator[Text]:
    """What a removal did, and what it could not reach."""
    counts = [f"{count:,} {sort}" for sort, count in receipt.removed.items() if count]
    yield Text(plain(f"{verb}: {', '.join(counts) or 'nothing'}"))
    for left in receipt.remains:
        yield Text.assemble(
            ("remains: ", "yellow"), plain(f"{left.what} in {left.where}; {left.remedy}")
        )
