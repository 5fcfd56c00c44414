"""`holdfast claude import` and `export`: the Claude Code CLI's transcripts into a store and out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import App, Group, Parameter

from ..adapters.claude import ClaudeSessionStore
from ..adapters.claude.files import TranscriptFile, TranscriptProblem, find, projects_folder
from ..adapters.claude.summaries import fold
from ..adapters.claude.transfer import (
    TranscriptExport,
    TranscriptImport,
    export_session,
    import_transcript,
)
from ..errors import InvalidValue, SessionNotFound
from ..stores.creation import StoreCreation
from .options import EVERYWHERE, Common, look_into
from .output import Output, plain
from .render import number

HELP = """The transcripts of the Claude Code CLI: into a store, and out of it.

```
holdfast claude import
holdfast claude export ~/restored
```
"""
OTHER_CONTENT = "has content that the store does not continue; --force replaces it"

Paths: TypeAlias = Annotated[
    list[Path],
    Parameter(
        help="A folder of projects, a project's folder, or a session's .jsonl. Default: "
        "~/.claude/projects, or where $CLAUDE_CONFIG_DIR says."
    ),
]


def app(group: Group, place: int) -> App:
    """The verbs of `holdfast claude`, to be shown at a place of a group."""
    claude = App(name="claude", help=HELP, help_format="markdown", group=group, sort_key=place)
    claude.command(import_, name="import")
    claude.command(export, name="export")
    return claude


async def import_(
    paths: Paths = [],  # noqa: B006 - cyclopts makes it anew
    /,
    *,
    create: Annotated[bool, Parameter(help="Make the store if there is none.")] = False,
    dry_run: Annotated[bool, Parameter(help="Say what would be added; add nothing.")] = False,
    common: Common = EVERYWHERE,
) -> int:
    """Bring transcripts and those of their sub-agents into the store.

    ```
    holdfast claude import ~/.claude/projects/-home-ann-shop
    ```

    What is there already is not added again, also when the SDK wrote it. A line that is no entry
    is listed and left out, and the exit code is 1. With `--json`: one document.
    """
    out = common.output()
    found, others = await asyncio.to_thread(_find, paths or [projects_folder()])
    total = TranscriptImport(problems=[])
    creation = StoreCreation(common.url, folders=create and not dry_run)
    async with creation, _opened(common, create=create, dry_run=dry_run) as claude:
        with out.counting("importing", len(found)) as progress:
            for transcript in found:
                progress(transcript.path.name)
                done = await import_transcript(claude, transcript, dry_run=dry_run)
                total.added += done.added
                total.known += done.known
                total.problems += done.problems
        creation.drop = bool(total.problems) and not total.added
    _tell_import(out, total, found, others, dry_run)
    return int(bool(total.problems))


def _find(paths: list[Path]) -> tuple[list[TranscriptFile], int]:
    found: dict[Path, TranscriptFile] = {}
    others = 0
    for path in paths:
        try:
            transcripts, more = find(path.expanduser())
        except FileNotFoundError as error:
            raise InvalidValue(
                field="path", problem=f"there is nothing at {str(path)!r}", remedy="name another"
            ) from error
        found.update((transcript.path.absolute(), transcript) for transcript in transcripts)
        others += more
    return list(found.values()), others


@asynccontextmanager
async def _opened(
    common: Common, *, create: bool = False, dry_run: bool = False
) -> AsyncGenerator[ClaudeSessionStore, None]:
    await asyncio.to_thread(fold, None, [])  # says that the extra is missing, and is slow at first
    if create and not dry_run:
        async with ClaudeSessionStore(common.url, tenant=common.tenant) as made:
            yield made
    else:
        async with look_into(common.url) if create else common.open() as store:
            yield ClaudeSessionStore(store, tenant=common.tenant)


def _tell_import(
    out: Output, total: TranscriptImport, found: list[TranscriptFile], others: int, dry_run: bool
) -> None:
    sessions = len({(t.project, t.session_id) for t in found})
    if out.json:
        out.emit(
            {
                "sessions": sessions,
                "transcripts": len(found),
                "added": total.added,
                "known": total.known,
                "other_files": others,
                "problems": total.problems,
                "dry_run": dry_run,
            }
        )
        return
    out.print(*map(_problem_text, total.problems))
    verb = "would add" if dry_run else "added"
    out.print(
        f"{verb} {number(total.added, 'line')} of {number(len(found), 'transcript')} "
        f"in {number(sessions, 'session')}; {total.known:,} were there"
    )
    if others:
        out.remark(f"passed over {number(others, 'file')} that hold no transcript")


def _problem_text(problem: TranscriptProblem) -> str:
    line = f":{problem.line}" if problem.line is not None else ""
    return plain(f"left out {problem.path}{line}: {problem.problem}")


async def export(
    dest: Annotated[Path, Parameter(help="The folder of projects to write into.")],
    /,
    *,
    project: Annotated[str | None, Parameter(help="Only sessions of this project key.")] = None,
    session: Annotated[str | None, Parameter(help="Only the session with this id.")] = None,
    force: Annotated[bool, Parameter(help="Replace files that have other content.")] = False,
    common: Common = EVERYWHERE,
) -> int:
    """Write sessions as the CLI's files, with their sub-agents.

    ```
    holdfast claude export ~/restored --project -home-ann-shop
    ```

    Each file is put in place whole. One that the store's transcript continues is replaced, one
    that has anything else is kept unless `--force` is given, and the exit code is 1. So it is
    for names that would lead out of the folder. With `--json`: one document.
    """
    out = common.output()
    total = TranscriptExport(files={}, problems=[])
    async with _opened(common) as claude:
        wanted = [
            pair
            for pair in await claude.sessions()
            if project in (None, pair[0]) and session in (None, pair[1])
        ]
        if session is not None and not wanted:
            raise SessionNotFound(tenant=common.tenant, session=session)
        times = await _times(claude, {pair[0] for pair in wanted})
        folder = dest.expanduser()
        with out.counting("exporting", len(wanted)) as progress:
            for pair in wanted:
                progress(pair[1])
                done = await export_session(
                    claude, *pair, folder, force=force, mtime=times.get(pair)
                )
                total.files.update(done.files)
                total.problems += done.problems
    total.problems += [
        TranscriptProblem(path, OTHER_CONTENT) for path, end in total.files.items() if end == "kept"
    ]
    _tell_export(out, total, len(wanted))
    return int(bool(total.problems))


async def _times(claude: ClaudeSessionStore, projects: set[str]) -> dict[tuple[str, str], int]:
    return {
        (project, listed["session_id"]): listed["mtime"]
        for project in projects
        for listed in await claude.list_sessions(project)
    }


def _tell_export(out: Output, total: TranscriptExport, sessions: int) -> None:
    ends = list(total.files.values())
    if out.json:
        out.emit(
            {
                "sessions": sessions,
                "written": ends.count("written"),
                "unchanged": ends.count("unchanged"),
                "problems": total.problems,
            }
        )
        return
    out.print(*map(_problem_text, total.problems))
    out.print(
        f"wrote {number(ends.count('written'), 'file')} of {number(sessions, 'session')}; "
        f"{ends.count('unchanged'):,} were there"
    )
