"""Imports and exports transcripts between the folders of the Claude Code CLI and a store. Both can
be repeated without creating duplicates."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...bundle.claude.entries import is_metadata, to_line, to_lines
from ...bundle.claude.files import meta_path
from ...errors import InvalidValue
from . import files
from .batches import digest, entry_id
from .files import TranscriptFile, TranscriptProblem, WriteStatus, shown
from .store import ClaudeSessionStore

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey


class TranscriptImport(Struct):
    """The result of an import: the numbers of added and of already stored entries, and what was
    skipped."""

    added: int = 0
    known: int = 0
    problems: list[TranscriptProblem] = []


class TranscriptExport(Struct):
    """The result of an export: the status of each file, and what was skipped and why."""

    files: dict[str, WriteStatus] = {}
    problems: list[TranscriptProblem] = []


class _Stored:
    """The entries of a transcript in the store. An entry without a uuid is identified by its
    content and its index among equal entries, so that importing a file twice adds nothing."""

    def __init__(self, entries: list[Any] | None) -> None:
        entries = entries or []
        self._ids = {entry_id(entry) for entry in entries}
        self._contents = Counter(digest(entry) for entry in entries if entry_id(entry) is None)
        self._met: Counter[str] = Counter()
        self._counted: set[str] = set()
        metadata = [entry for entry in entries if is_metadata(entry)]
        self.metadata = metadata[-1] if metadata else None

    def missing(self, entry: Any) -> str | None:
        """Return the id under which to store the next entry of a file; None if the entry is already
        stored."""
        id = entry_id(entry)
        if id is not None:
            return None if id in self._ids else id
        content = digest(entry)
        self._met[content] += 1
        number = self._met[content]
        return f"line:{content}:{number}" if number > self._contents[content] else None

    def count(self, ids: Iterable[str]) -> int:
        """Return how many of these ids are new. Each id is counted once."""
        new = set(ids) - self._counted
        self._counted |= new
        return len(new)

    def another(self, entry: Any) -> str:
        """Return an id under which to store one more entry with the same content."""
        content = digest(entry)
        return f"line:{content}:{self._contents[content] + 1}"


async def import_transcript(
    store: ClaudeSessionStore, transcript: TranscriptFile, *, dry_run: bool = False
) -> TranscriptImport:
    """Add the entries of a file that are not in the store, in the order of the file. With
    `dry_run`, they are only counted."""
    done = TranscriptImport(problems=[])
    try:
        stored = _Stored(await store.load(transcript.key))
    except InvalidValue as error:  # not a valid session id
        done.problems.append(TranscriptProblem(shown(transcript.path), str(error)))
        return done
    with closing(files.read(transcript)) as batches:
        while batch := await asyncio.to_thread(next, batches, None):
            done.problems += [item for item in batch if isinstance(item, TranscriptProblem)]
            read = [item for item in batch if not isinstance(item, TranscriptProblem)]
            wanted = [(n, entry, id) for n, entry in read if (id := stored.missing(entry))]
            done.known += len(read) - len(wanted)
            if dry_run:
                done.added += stored.count(id for _, _, id in wanted)
            else:
                await _add(store, transcript, wanted, done)
    meta = await asyncio.to_thread(files.read_meta, transcript)
    if isinstance(meta, TranscriptProblem):
        done.problems.append(meta)
    elif meta is not None and meta == stored.metadata:
        done.known += 1
    elif meta is not None and dry_run:
        done.added += 1
    elif meta is not None:
        await _add(store, transcript, [(None, meta, stored.another(meta))], done)
    return done


async def _add(
    store: ClaudeSessionStore,
    transcript: TranscriptFile,
    wanted: Sequence[tuple[int | None, Any, str]],
    done: TranscriptImport,
) -> None:
    try:
        done.added += await store.add(transcript.key, [(entry, id) for _, entry, id in wanted])
    except InvalidValue as error:
        if len(wanted) == 1:
            problem = TranscriptProblem(shown(transcript.path), str(error), wanted[0][0])
            done.problems.append(problem)
            return
        for one in wanted:
            await _add(store, transcript, [one], done)


async def export_session(
    store: ClaudeSessionStore,
    project: str,
    session_id: str,
    folder: Path,
    *,
    force: bool = False,
    mtime: int | None = None,
) -> TranscriptExport:
    """Write the transcripts of a session to files below `folder`. Each file is written
    atomically."""
    done = TranscriptExport(files={}, problems=[])
    subpaths = await store.list_subkeys({"project_key": project, "session_id": session_id})
    for subpath in [None, *subpaths]:
        key: SessionKey = {"project_key": project, "session_id": session_id}
        if subpath is not None:
            key["subpath"] = subpath
        entries = await store.load(key)
        if not entries:
            continue
        try:
            path = await asyncio.to_thread(
                files.transcript_path, folder, project, session_id, subpath
            )
            for file, content in _contents(path, subpath, entries):
                stamp = mtime if subpath is None else None
                done.files[shown(file)] = await asyncio.to_thread(
                    files.write, file, content, force=force, mtime=stamp
                )
        except (OSError, ValueError) as error:
            name = "/".join(filter(None, (project, session_id, subpath)))
            done.problems.append(TranscriptProblem(name, str(error)))
    return done


def _contents(path: Path, subpath: str | None, entries: list[Any]) -> Iterator[tuple[Path, bytes]]:
    """Yield the path and the content of each file of a transcript."""
    if subpath is None:
        yield path, to_lines(entries)
        return
    lines = [entry for entry in entries if not is_metadata(entry)]
    metadata = [entry for entry in entries if is_metadata(entry)]
    if lines:
        yield path, to_lines(lines)
    if metadata:
        plain = {name: value for name, value in metadata[-1].items() if name != "type"}
        yield meta_path(path), to_line(plain)
