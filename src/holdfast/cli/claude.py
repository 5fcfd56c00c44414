"""`holdfast claude`: import and export transcripts of the Claude Code CLI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

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
from .options import DEFAULTS, Common, Create, DryRun, Force, open_for_dry_run
from .render import number

OTHER_CONTENT = "differs from the stored transcript; --force overwrites it"

Paths: TypeAlias = Annotated[
    list[Path],
    Parameter(
        help="Folder of projects, folder of one project, or .jsonl file of a session. Default: "
        "the projects folder in $CLAUDE_CONFIG_DIR, else ~/.claude/projects."
    ),
]


async def import_(
    paths: Paths = [],  # noqa: B006 - cyclopts makes it anew
    /,
    *,
    create: Create = False,
    dry_run: DryRun = False,
    common: Common = DEFAULTS,
) -> int:
    """Import transcripts, including transcripts of sub-agents, into the store.

    ```
    holdfast claude import ~/.claude/projects/-home-ann-shop
    ```

    Entries that are already stored are not added again, even if the SDK stored them. Lines that are
    not entries are listed and skipped; the exit code is 1 if there are any. With `--json`, prints
    one JSON object.
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
    sessions = len({(t.project, t.session_id) for t in found})
    about = {
        "sessions": sessions,
        "transcripts": len(found),
        "added": total.added,
        "known": total.known,
        "other_files": others,
        "problems": total.problems,
        "dry_run": dry_run,
    }
    said = (
        f"{'would add' if dry_run else 'added'} {number(total.added, 'line')} of "
        f"{number(len(found), 'transcript')} in {number(sessions, 'session')}; "
        f"{total.known:,} already stored"
    )
    out.show(about, [*_problem_lines(total.problems), said])
    if others:
        out.note(f"skipped {number(others, 'file')} without a transcript")
    return int(bool(total.problems))


def _find(paths: list[Path]) -> tuple[list[TranscriptFile], int]:
    found: dict[Path, TranscriptFile] = {}
    others = 0
    for path in paths:
        try:
            transcripts, more = find(path.expanduser())
        except FileNotFoundError as error:
            raise InvalidValue(
                field="path", problem=f"{str(path)!r} does not exist", remedy="pass another path"
            ) from error
        found.update((transcript.path.absolute(), transcript) for transcript in transcripts)
        others += more
    return list(found.values()), others


@asynccontextmanager
async def _opened(
    common: Common, *, create: bool = False, dry_run: bool = False
) -> AsyncGenerator[ClaudeSessionStore, None]:
    await asyncio.to_thread(fold, None, [])  # fails if the extra is missing; slow the first time
    if create and not dry_run:
        async with ClaudeSessionStore(common.url, tenant=common.tenant) as made:
            yield made
    else:
        async with open_for_dry_run(common.url) if create else common.open() as store:
            yield ClaudeSessionStore(store, tenant=common.tenant)


def _problem_lines(problems: list[TranscriptProblem]) -> Iterator[str]:
    for problem in problems:
        line = f":{problem.line}" if problem.line is not None else ""
        yield f"skipped {problem.path}{line}: {problem.problem}"


async def _wanted(
    claude: ClaudeSessionStore, tenant: str, project: str | None, session: str | None
) -> list[tuple[str, str]]:
    """Return the sessions to export. Raises `SessionNotFound` if `session` is set and missing."""
    found = await claude.sessions()
    wanted = [p for p in found if project in (None, p[0]) and session in (None, p[1])]
    if session is not None and not wanted:
        raise SessionNotFound(tenant=tenant, session=session)
    return wanted


async def export(
    dest: Path,
    /,
    *,
    project: str | None = None,
    session: str | None = None,
    force: Force = False,
    common: Common = DEFAULTS,
) -> int:
    """Export sessions as transcript files of the Claude Code CLI.

    ```
    holdfast claude export ~/restored --project -home-ann-shop
    ```

    Sub-agents are included. A file is replaced if the stored transcript continues it. A file with
    other content is not overwritten, and the exit code is 1, unless `--force` is given. Names that
    lead outside the folder are skipped; the exit code is 1 in that case too. With `--json`, prints
    one JSON object.

    :param dest: Folder of projects to write to.
    :param project: Only sessions with this project key.
    :param session: Only the session with this id.
    """
    out = common.output()
    folder = await asyncio.to_thread(dest.expanduser)
    total = TranscriptExport(files={}, problems=[])
    async with _opened(common) as claude:
        wanted = await _wanted(claude, common.tenant, project, session)
        times = await _times(claude, {pair[0] for pair in wanted})
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
    ends = list(total.files.values())
    counts = {end: ends.count(end) for end in ("written", "unchanged")}
    said = (
        f"wrote {number(counts['written'], 'file')} of {number(len(wanted), 'session')}; "
        f"{counts['unchanged']:,} unchanged"
    )
    about = {"sessions": len(wanted), **counts, "problems": total.problems}
    out.show(about, [*_problem_lines(total.problems), said])
    return int(bool(total.problems))


async def _times(claude: ClaudeSessionStore, projects: set[str]) -> dict[tuple[str, str], int]:
    return {
        (project, listed["session_id"]): listed["mtime"]
        for project in projects
        for listed in await claude.list_sessions(project)
    }
