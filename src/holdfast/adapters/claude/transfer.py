"""Transcripts between the CLI's folders and a store, either way, as often as one likes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...errors import InvalidValue
from . import files
from .entries import digest, entry_id
from .files import METADATA, Problem, Transcript, Written, shown
from .store import ClaudeSessionStore

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey


class Imported(Struct):
    """What an import did: entries added, entries that were there, and what was left out."""

    added: int = 0
    known: int = 0
    problems: list[Problem] = []


class Exported(Struct):
    """What became of each file, and what was left out."""

    files: dict[str, Written] = {}
    problems: list[Problem] = []


class _There:
    """What a transcript in the store has. An entry without a uuid is known by its content, and
    which of the equal ones it is: so a file is its own, whoever brought its lines here."""

    def __init__(self, entries: list[Any] | None) -> None:
        entries = entries or []
        self._ids = {entry_id(entry) for entry in entries}
        self._contents = Counter(digest(entry) for entry in entries if entry_id(entry) is None)
        self._met: Counter[str] = Counter()
        self._counted: set[str] = set()
        metadata = [entry for entry in entries if _is_metadata(entry)]
        self.metadata = metadata[-1] if metadata else None

    def missing(self, entry: Any) -> str | None:
        """The id under which to add the next entry of a file, None if it is there."""
        id = entry_id(entry)
        if id is not None:
            return None if id in self._ids else id
        content = digest(entry)
        self._met[content] += 1
        number = self._met[content]
        return f"line:{content}:{number}" if number > self._contents[content] else None

    def count(self, ids: Iterable[str]) -> int:
        """How many of these ids would be new: one that comes again is one."""
        new = set(ids) - self._counted
        self._counted |= new
        return len(new)

    def another(self, entry: Any) -> str:
        """The id under which to add an entry behind all that are equal."""
        content = digest(entry)
        return f"line:{content}:{self._contents[content] + 1}"


def _is_metadata(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("type") == METADATA


async def import_transcript(
    store: ClaudeSessionStore, transcript: Transcript, *, dry_run: bool = False
) -> Imported:
    """Add what the store's transcript lacks of the file's, in the order of the file. With
    `dry_run` it is only counted."""
    done = Imported(problems=[])
    try:
        there = _There(await store.load(transcript.key))
    except InvalidValue as error:  # no name for a session
        done.problems.append(Problem(shown(transcript.path), str(error)))
        return done
    with closing(files.read(transcript)) as batches:
        while batch := await asyncio.to_thread(next, batches, None):
            done.problems += [item for item in batch if isinstance(item, Problem)]
            read = [item for item in batch if not isinstance(item, Problem)]
            wanted = [(n, entry, id) for n, entry in read if (id := there.missing(entry))]
            done.known += len(read) - len(wanted)
            if dry_run:
                done.added += there.count(id for _, _, id in wanted)
            else:
                await _add(store, transcript, wanted, done)
    meta = await asyncio.to_thread(files.read_meta, transcript)
    if isinstance(meta, Problem):
        done.problems.append(meta)
    elif meta is not None and meta == there.metadata:
        done.known += 1
    elif meta is not None and dry_run:
        done.added += 1
    elif meta is not None:
        await _add(store, transcript, [(None, meta, there.another(meta))], done)
    return done


async def _add(
    store: ClaudeSessionStore,
    transcript: Transcript,
    wanted: Sequence[tuple[int | None, Any, str]],
    done: Imported,
) -> None:
    try:
        done.added += await store.add(transcript.key, [(entry, id) for _, entry, id in wanted])
    except InvalidValue as error:
        if len(wanted) == 1:
            done.problems.append(Problem(shown(transcript.path), str(error), wanted[0][0]))
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
) -> Exported:
    """Write the transcripts of a session below `folder`, each as a whole or not at all."""
    done = Exported(files={}, problems=[])
    subpaths = await store.list_subkeys({"project_key": project, "session_id": session_id})
    for subpath in [None, *subpaths]:
        key: SessionKey = {"project_key": project, "session_id": session_id}
        if subpath is not None:
            key["subpath"] = subpath
        entries = await store.load(key)
        if not entries:
            continue
        try:
            path = await asyncio.to_thread(files.place, folder, project, session_id, subpath)
            for file, content in _contents(path, subpath, entries):
                stamp = mtime if subpath is None else None
                write = asyncio.to_thread(files.write, file, content, force=force, mtime=stamp)
                done.files[shown(file)] = await write
        except (OSError, ValueError) as error:
            name = "/".join(filter(None, (project, session_id, subpath)))
            done.problems.append(Problem(name, str(error)))
    return done


def _contents(path: Path, subpath: str | None, entries: list[Any]) -> Iterator[tuple[Path, bytes]]:
    """The files of a transcript."""
    if subpath is None:
        yield path, files.lines(entries)
        return
    told = [entry for entry in entries if not _is_metadata(entry)]
    metadata = [entry for entry in entries if _is_metadata(entry)]
    if told:
        yield path, files.lines(told)
    if metadata:
        plain = {name: value for name, value in metadata[-1].items() if name != "type"}
        yield files.meta_of(path), files.json_line(plain)
