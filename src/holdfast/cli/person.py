"""`holdfast person`: export or erase all data of one user."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter
from rich.text import Text

from ..sessions import PersonErased, PersonRecord, Sessions
from ..values.records import Receipt
from .bundle_files import replaced_whole, write_error
from .options import DEFAULTS, Common, DryRun, Yes, check_can_ask, confirmed
from .output import Output, json_text, plain
from .render import number, receipt_text

CHUNK = 1 << 20  # characters that are written at a time

User: TypeAlias = Annotated[
    str, Parameter(help="User id. Put -- before an id that starts with a dash.")
]
OwnOnly: TypeAlias = Annotated[
    bool, Parameter(help="Only the user's own sessions, not their events in other sessions.")
]


async def export(
    user: User,
    /,
    *,
    out: Path | None = None,
    own_only: OwnOnly = False,
    common: Common = DEFAULTS,
) -> None:
    """Export all data of a user as JSON lines.

    ```
    holdfast person export ann --out ann.jsonl
    ```

    The file contains the user's sessions, and their events in other sessions. To find these, every
    log of the tenant is read. The file is written completely or not at all, and only you can read
    it. With `--out` and `--json`, prints one JSON object that says what was written.

    :param out: File to write. Default: standard output.
    """
    said = Output(json=common.json or out is None)  # stdout contains JSON in both cases
    count = _ExportCount()
    async with common.open() as store:
        records = Sessions(store, tenant=common.tenant).export_person(user, shared=not own_only)
        with said.working("exporting") as progress:
            async with aclosing(_chunks(records, count, progress)) as chunks:
                if out is not None:
                    await _write(await asyncio.to_thread(out.expanduser), chunks)
                else:
                    async for chunk in chunks:
                        print(chunk, end="")
    if count.records == 0:
        said.remark(f"no data is stored for {user!r}")
    if out is not None:
        about = {"records": count.records, "sessions": len(count.sessions), "file": str(out)}
        said.show(about, f"wrote {count} to {out}")


@dataclass
class _ExportCount:
    """Counts the records and sessions that were exported so far."""

    records: int = 0
    sessions: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{number(self.records, 'record')} of {number(len(self.sessions), 'session')}"


async def _chunks(
    records: AsyncGenerator[PersonRecord, None],
    count: _ExportCount,
    progress: Callable[[str], None],
) -> AsyncGenerator[str, None]:
    """Encode the records as lines, in chunks."""
    lines: list[str] = []
    size = 0
    async with aclosing(records):
        async for record in records:
            lines.append(json_text(_as_json(record)) + "\n")
            size += len(lines[-1])
            count.records += 1
            count.sessions.add(record.session)
            if count.records % 100 == 1:
                progress(f"({count})")
            if size >= CHUNK:
                yield "".join(lines)
                lines, size = [], 0
    yield "".join(lines)


def _as_json(record: PersonRecord) -> dict[str, Any]:
    where = {"session": record.session, "thread": record.thread, "own": record.own}
    if record.row is not None:
        return {**where, "row": msgspec.structs.asdict(record.row)}
    return {**where, "event": record.event}


async def _write(path: Path, chunks: AsyncGenerator[str, None]) -> None:
    try:
        async with replaced_whole(path, os.replace) as draft:
            file = await asyncio.to_thread(draft.open, "w", encoding="utf-8")
            try:
                os.fchmod(file.fileno(), 0o600)  # personal data: for its owner only
                async for chunk in chunks:
                    await asyncio.to_thread(file.write, chunk)
                await asyncio.to_thread(_sync, file)
            finally:
                await asyncio.to_thread(file.close)
    except OSError as error:
        raise write_error(path, error) from error


def _sync(file: IO[str]) -> None:
    file.flush()
    os.fsync(file.fileno())


def erase(
    user: User,
    /,
    *,
    reason: str,
    own_only: OwnOnly = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    common: Common = DEFAULTS,
) -> int:
    """Delete a user's sessions and erase their events in other sessions.

    ```
    holdfast person erase ann --reason "request 12" --dry-run
    ```

    This cannot be undone. Shows what would be erased and asks for confirmation; without a terminal,
    `--yes` is required. Sessions under legal hold are skipped; the exit code is 1 if there are any.
    Prints what was removed, and what remains until `holdfast purge`. With `--json`, prints one JSON
    object.

    :param reason: Reason, recorded in place of each erased event.
    """
    out = common.output()
    if not yes and not dry_run:
        check_can_ask("person erase")
        would = asyncio.run(_erase(out, user, reason, own_only, True, common))
        out.remark(*_erased_text(user, would))
        if not (would.sessions or would.events):
            return int(bool(would.refused))
        if not confirmed("person erase", f"Erase this data of {user!r} permanently?"):
            out.remark("nothing was erased")
            return 1
    done = asyncio.run(_erase(out, user, reason, own_only, dry_run, common))
    lines = [*_erased_text(user, done)]
    if not done.dry_run:
        lines += receipt_text(Receipt(removed=done.removed, remains=tuple(done.remains)))
    out.show(done, lines)
    return int(bool(done.refused))


async def _erase(
    out: Output, user: str, reason: str, own_only: bool, dry_run: bool, common: Common
) -> PersonErased:
    async with common.open() as store:
        with out.working("searching" if dry_run else "erasing"):
            return await Sessions(store, tenant=common.tenant).erase_person(
                user, reason=reason, shared=not own_only, dry_run=dry_run
            )


def _erased_text(user: str, done: PersonErased) -> Iterator[Text]:
    """Describe what is or would be erased, one line per session."""
    if not (done.sessions or done.events or done.refused):
        yield Text(plain(f"no data is stored for {user!r}"))
    would = "would be " if done.dry_run else ""
    for session in done.sessions:
        yield Text.assemble((plain(session), "bold"), f"  {would}deleted")
    for session, count in done.events.items():
        yield Text.assemble((plain(session), "bold"), f"  {number(count, 'event')} {would}erased")
    for session, why in done.refused.items():
        yield Text.assemble((plain(session), "bold"), ("  refused  ", "yellow"), plain(why))
