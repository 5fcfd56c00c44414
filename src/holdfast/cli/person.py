"""`holdfast person export` and `erase`: all that is stored of one person, given out or gone."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

from cyclopts import App, Group, Parameter
from rich.text import Text

from ..errors import InvalidValue
from ..sessions import PersonErased, PersonRecord, Sessions
from ..values.records import Receipt
from .listing import whole
from .options import EVERYWHERE, Common
from .output import Output, json_text, plain
from .render import number, receipt_text
from .upkeep import Yes, agreed, check_can_ask

HELP = """All that is stored of one person: give it out, or erase it.

```
holdfast person export ann --out ann.jsonl
holdfast person erase ann --reason "request 12"
```
"""
CHUNK = 1 << 20  # characters that are written at a time

User: TypeAlias = Annotated[
    str, Parameter(help="The person; put -- before one that begins with a dash.")
]
OwnOnly: TypeAlias = Annotated[
    bool, Parameter(help="Only their own sessions, not their events in those of others.")
]


def app(group: Group, place: int) -> App:
    """The verbs of `holdfast person`, to be shown at a place of a group."""
    person = App(name="person", help=HELP, help_format="markdown", group=group, sort_key=place)
    for at, verb in enumerate(VERBS):
        person.command(verb, sort_key=at)
    return person


# Giving out


async def export(
    user: User,
    /,
    *,
    out: Annotated[
        Path | None, Parameter(help="The file to write. Default: standard output.")
    ] = None,
    own_only: OwnOnly = False,
    common: Common = EVERYWHERE,
) -> int:
    """Write all that is stored of a person, as JSON lines.

    ```
    holdfast person export ann --out ann.jsonl
    ```

    Their sessions whole, and their events in the sessions of others, for which every log of the
    tenant is read. A file is put in place whole, and only you can read it. With `--out` and
    `--json`: one document of what was written.
    """
    # What goes to stdout is JSON in any case.
    said = Output(json=common.json or out is None)
    tally = Tally()
    async with common.open() as store:
        records = Sessions(store, tenant=common.tenant).export_person(user, shared=not own_only)
        with said.working("exporting") as progress:
            async with aclosing(_chunks(records, tally, progress)) as chunks:
                if out is not None:
                    await _put_whole(out.expanduser(), chunks)
                else:
                    async for chunk in chunks:
                        print(chunk, end="")
    if tally.records == 0:
        said.remark(f"nothing is stored of {user!r}")
    if out is not None:
        _tell_export(said, tally, out)
    return 0


@dataclass
class Tally:
    """How much an export has given out."""

    records: int = 0
    sessions: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{number(self.records, 'record')} of {number(len(self.sessions), 'session')}"


async def _chunks(
    records: AsyncGenerator[PersonRecord, None], tally: Tally, progress: Callable[[str], None]
) -> AsyncGenerator[str, None]:
    """The records as lines, many at a time."""
    lines: list[str] = []
    size = 0
    async with aclosing(records):
        async for record in records:
            lines.append(json_text(_as_json(record)) + "\n")
            size += len(lines[-1])
            tally.records += 1
            tally.sessions.add(record.session)
            if tally.records % 100 == 1:
                progress(f"({tally})")
            if size >= CHUNK:
                yield "".join(lines)
                lines, size = [], 0
    yield "".join(lines)


def _as_json(record: PersonRecord) -> dict[str, Any]:
    where = {"session": record.session, "thread": record.thread, "own": record.own}
    if record.row is not None:
        return {**where, "row": whole(record.row)}
    return {**where, "event": record.event}


async def _put_whole(path: Path, chunks: AsyncGenerator[str, None]) -> None:
    """Write a file that stands at its path once it is whole, and not before."""
    try:
        part = await asyncio.to_thread(_begin, path)
        try:
            async for chunk in chunks:
                await asyncio.to_thread(part.write, chunk)
            await asyncio.to_thread(_finish, part, path)
        finally:
            await asyncio.to_thread(_clear, part)
    except OSError as error:
        raise InvalidValue(
            field="out",
            problem=f"{str(path)!r} cannot be written ({error.strerror or error})",
            remedy="name another file",
        ) from error


def _begin(path: Path) -> IO[str]:
    # Readable by its owner alone, as what is known of a person should be.
    part = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed by _clear
        "w", encoding="utf-8", dir=path.parent, prefix=".", suffix=".part", delete=False
    )
    return part


def _finish(part: IO[str], path: Path) -> None:
    part.flush()
    os.fsync(part.fileno())
    part.close()
    Path(part.name).replace(path)


def _clear(part: IO[str]) -> None:
    part.close()
    Path(part.name).unlink(missing_ok=True)


def _tell_export(said: Output, tally: Tally, path: Path) -> None:
    if said.json:
        count = len(tally.sessions)
        said.emit({"records": tally.records, "sessions": count, "file": str(path)})
    else:
        said.print(plain(f"wrote {tally} to {path}"))


# Erasing


def erase(
    user: User,
    /,
    *,
    reason: Annotated[
        str, Parameter(help="Why; it stands in place of each event that was erased.")
    ],
    own_only: OwnOnly = False,
    dry_run: Annotated[bool, Parameter(help="Say what would go; erase nothing.")] = False,
    yes: Yes = False,
    common: Common = EVERYWHERE,
) -> int:
    """Delete a person's sessions, and erase their events in the sessions of others, for ever.

    ```
    holdfast person erase ann --reason "request 12" --dry-run
    ```

    Shows what would go and asks; where nobody can answer, `--yes` is needed. What is held is
    refused, the rest goes on, and the exit code is 1. Prints what was removed, and what is left
    where until `holdfast purge`. With `--json`: that receipt as one document.
    """
    out = common.output()
    if not yes and not dry_run:
        check_can_ask("person erase")
    if dry_run or not yes:
        would = asyncio.run(_erase(out, user, reason, own_only, True, common))
        if dry_run:
            _tell_erased(out, user, would)
            return int(bool(would.refused))
        out.remarks.print(*_found(user, would), sep="\n", soft_wrap=True)
        if not (would.sessions or would.events):
            return int(bool(would.refused))
        if not agreed("person erase", f"Erase this of {user!r} for ever?"):
            out.remark("nothing was erased")
            return 1
    done = asyncio.run(_erase(out, user, reason, own_only, False, common))
    _tell_erased(out, user, done)
    return int(bool(done.refused))


async def _erase(
    out: Output, user: str, reason: str, own_only: bool, dry_run: bool, common: Common
) -> PersonErased:
    async with common.open() as store:
        with out.working("looking" if dry_run else "erasing"):
            return await Sessions(store, tenant=common.tenant).erase_person(
                user, reason=reason, shared=not own_only, dry_run=dry_run
            )


def _tell_erased(out: Output, user: str, done: PersonErased) -> None:
    if out.json:
        out.emit(done)
        return
    out.print(*_found(user, done))
    if not done.dry_run:
        out.print(*receipt_text(Receipt(removed=done.removed, remains=tuple(done.remains))))


def _found(user: str, done: PersonErased) -> Iterator[Text]:
    """What goes or went, a line a session."""
    if not (done.sessions or done.events or done.refused):
        yield Text(plain(f"nothing is stored of {user!r}"))
    would = "would be " if done.dry_run else ""
    for session in done.sessions:
        yield Text.assemble((plain(session), "bold"), f"  {would}deleted")
    for session, count in done.events.items():
        yield Text.assemble((plain(session), "bold"), f"  {number(count, 'event')} {would}erased")
    for session, why in done.refused.items():
        yield Text.assemble((plain(session), "bold"), ("  refused  ", "yellow"), plain(why))


VERBS: tuple[Callable[..., Any], ...] = (export, erase)
