"""Finds, reads and writes transcripts in the folders of the Claude Code CLI. All functions block;
none uses a store.

`PROJECT/SESSION.jsonl` is a main transcript, `PROJECT/SESSION/SUBPATH.jsonl` the transcript of a
sub-agent. In a store, the `.meta.json` of a sub-agent is an entry of type `agent_metadata`.
"""

from __future__ import annotations

import json
import ntpath
import os
import re
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from ...bundle.atomic_file import write_file
from ...bundle.claude.entries import METADATA, Entry, parse_line
from ...bundle.claude.files import LINES, meta_path, session_folder, subagent_paths

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey

BATCH = 500  # lines to read at a time
BATCH_BYTES = 8 << 20

WriteStatus: TypeAlias = Literal["written", "unchanged", "kept"]


class TranscriptProblem(Struct, frozen=True):
    """A file, or one line of a file, that was skipped, with the reason."""

    path: str
    problem: str
    line: int | None = None


class TranscriptFile(Struct, frozen=True):
    """A transcript on disk. `path` is its `.jsonl`, which does not exist if a sub-agent has only a
    `.meta.json`."""

    path: Path
    project: str
    session_id: str
    subpath: str | None = None

    @property
    def key(self) -> SessionKey:
        key: SessionKey = {"project_key": self.project, "session_id": self.session_id}
        if self.subpath is not None:
            key["subpath"] = self.subpath
        return key

    @property
    def meta(self) -> Path:
        return meta_path(self.path)


def shown(path: Path) -> str:
    """Return a path as text, even if its bytes are not valid Unicode."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def projects_folder() -> Path:
    """Return the folder in which the CLI keeps the transcripts of all projects."""
    config = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(config) if config else Path.home() / ".claude") / "projects"


def find(path: Path) -> tuple[list[TranscriptFile], int]:
    """Find transcripts. `path` is a folder of projects, the folder of one project, or the `.jsonl`
    file of one session. Returns the transcripts, sorted by the time of the session's last write,
    and the number of other files. Raises `FileNotFoundError` if `path` does not exist."""
    if path.is_dir():
        projects = [path] if _is_project(path) else [p for p in path.iterdir() if p.is_dir()]
        sessions = [main for project in projects for main in _sessions(project)]
        folder = path
    else:
        path.stat()
        sessions, folder = [path], session_folder(path)
    found = [t for main in sorted(sessions, key=_written) for t in _transcripts(main)]
    known = {file for t in found for file in (t.path, t.meta)}
    return found, sum(file not in known for file in folder.rglob("*") if file.is_file())


def _is_project(folder: Path) -> bool:
    return any(folder.glob("*" + LINES)) or any(folder.glob("*/subagents"))


def _sessions(project: Path) -> list[Path]:
    """Return the paths of the main transcripts of a project. A session that has only a folder is
    included, although its main transcript does not exist."""
    folders = [path for path in project.iterdir() if path.is_dir()]
    found = {path for path in project.glob("*" + LINES) if path.is_file()}
    return sorted(found | {folder.with_name(folder.name + LINES) for folder in folders})


def _written(path: Path) -> tuple[float, str]:
    try:
        return path.stat().st_mtime, path.name
    except FileNotFoundError:
        return 0.0, path.name


def _transcripts(main: Path) -> list[TranscriptFile]:
    project, session = main.absolute().parent.name, session_folder(main).name
    found = [TranscriptFile(main, project, session)] if main.is_file() else []
    for name, path in subagent_paths(main).items():
        if "/" in name:  # files directly in the folder are not sub-agents
            found.append(TranscriptFile(path, project, session, name))
    return found


def read(
    transcript: TranscriptFile,
) -> Generator[list[tuple[int, Any] | TranscriptProblem], None, None]:
    """Yield the entries of a transcript with their line numbers, and a problem for each line that
    is not an entry, in batches."""
    if not transcript.path.exists():
        return
    batch: list[tuple[int, Any] | TranscriptProblem] = []
    size = 0
    with transcript.path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            found = parse_line(line)
            if isinstance(found, str):
                batch.append(TranscriptProblem(shown(transcript.path), found, number))
            else:
                batch.append((number, found))
            size += len(line)
            if len(batch) >= BATCH or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def read_meta(transcript: TranscriptFile) -> Entry | TranscriptProblem | None:
    """Return the `.meta.json` of a sub-agent as an entry for a store; None if there is no such
    file."""
    if transcript.subpath is None or not transcript.meta.exists():
        return None
    found = parse_line(transcript.meta.read_bytes())
    if isinstance(found, str):
        return TranscriptProblem(shown(transcript.meta), found)
    return {**found, "type": METADATA}


def transcript_path(folder: Path, project: str, session_id: str, subpath: str | None) -> Path:
    """Return the path of a transcript in a folder of projects. Raises `ValueError` for names that
    are not plain file names, or that lead outside the folder."""
    parts = [project, session_id, *(subpath.split("/") if subpath is not None else ())]
    for part in parts:
        if part in ("", ".", "..") or re.search(r"[\0/\\]", part) or ntpath.splitdrive(part)[0]:
            raise ValueError(f"{part!r} is not a valid file name")
    path = folder.joinpath(*parts)
    path = path.with_name(path.name + LINES)
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{str(path)!r} is outside the folder")
    return path


def write(path: Path, content: bytes, *, force: bool, mtime: int | None = None) -> WriteStatus:
    """Write a file completely. An existing file is replaced if the new content begins with its
    content, or with `force`; otherwise it is kept."""
    with suppress(FileNotFoundError):
        old, new = _values(path.read_bytes()), _values(content)
        if old == new:
            return "unchanged"
        if not force and (old is None or new is None or new[: len(old)] != old):
            return "kept"
    write_file(path, content, mtime=mtime)
    return "written"


def _values(content: bytes) -> list[Any] | None:
    """Return the JSON values in a file: a single value, or one per line. Returns None if the file
    contains anything else.
    """
    try:
        return [json.loads(content)]
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in content.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
