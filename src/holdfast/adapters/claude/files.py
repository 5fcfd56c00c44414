"""The transcripts that the Claude Code CLI keeps on disk: where they are, what is in them, and how
they are written. Blocks; knows no store.

`PROJECT/SESSION.jsonl` is a main transcript, `PROJECT/SESSION/SUBPATH.jsonl` a sub-agent's; beside
it `….meta.json` holds what a store keeps as an entry of type `agent_metadata`.
"""

from __future__ import annotations

import json
import ntpath
import os
import re
import tempfile
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey

LINES, META = ".jsonl", ".meta.json"
METADATA = "agent_metadata"

BATCH = 500  # lines at a time
BATCH_BYTES = 8 << 20

Written: TypeAlias = Literal["written", "unchanged", "kept"]


class Problem(Struct, frozen=True):
    """Something that was left out: a whole file, or one line of it."""

    path: str
    problem: str
    line: int | None = None


class Transcript(Struct, frozen=True):
    """A transcript on disk; `path` is its `.jsonl`, which may be missing beside a `.meta.json`."""

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
        return meta_of(self.path)


def shown(path: Path) -> str:
    """A path as text, whatever its bytes are."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def meta_of(path: Path) -> Path:
    """What stands beside a sub-agent's transcript."""
    return path.with_name(path.name.removesuffix(LINES) + META)


def projects_folder() -> Path:
    """Where the CLI keeps the transcripts of all projects."""
    config = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(config) if config else Path.home() / ".claude") / "projects"


def find(path: Path) -> tuple[list[Transcript], int]:
    """The transcripts of a folder of projects, of one project, or of the session of one `.jsonl`,
    the last written last; and how many other files there are. `FileNotFoundError` if `path` is
    not there."""
    if path.is_dir():
        projects = [path] if _is_project(path) else [p for p in path.iterdir() if p.is_dir()]
        sessions = [main for project in projects for main in _sessions(project)]
        there = [file for file in path.rglob("*") if file.is_file()]
    else:
        path.stat()
        sessions = [path]
        there = [file for file in _folder(path).rglob("*") if file.is_file()]
    found = [t for main in sorted(sessions, key=_written) for t in _transcripts(main)]
    taken = {file for t in found for file in (t.path, t.meta)}
    return found, sum(file not in taken for file in there)


def _is_project(folder: Path) -> bool:
    return any(folder.glob("*" + LINES)) or any(folder.glob("*/subagents"))


def _sessions(project: Path) -> list[Path]:
    """The main transcripts of a project, also those that are missing beside a folder."""
    folders = [path for path in project.iterdir() if path.is_dir()]
    found = {path for path in project.glob("*" + LINES) if path.is_file()}
    return sorted(found | {folder.with_name(folder.name + LINES) for folder in folders})


def _written(path: Path) -> tuple[float, str]:
    try:
        return path.stat().st_mtime, path.name
    except FileNotFoundError:
        return 0.0, path.name


def _folder(main: Path) -> Path:
    """Where the sub-agents of a session are."""
    return main.with_name(main.name.removesuffix(LINES))


def _transcripts(main: Path) -> list[Transcript]:
    project, folder = main.absolute().parent.name, _folder(main)
    found = [Transcript(main, project, folder.name)] if main.is_file() else []
    stems = {stem for path in folder.glob("*/**/*") if path.is_file() and (stem := _stem(path))}
    for stem in sorted(stems):
        subpath = Path(stem).relative_to(folder).as_posix()
        found.append(Transcript(Path(stem + LINES), project, folder.name, subpath))
    return found


def _stem(path: Path) -> str | None:
    for ending in (LINES, META):
        if path.name.endswith(ending) and path.name != ending:
            return str(path).removesuffix(ending)
    return None


def read(transcript: Transcript) -> Generator[list[tuple[int, Any] | Problem], None, None]:
    """The entries of a transcript with their lines, and each line that holds none, some at a
    time."""
    if not transcript.path.exists():
        return
    batch: list[tuple[int, Any] | Problem] = []
    size = 0
    with transcript.path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            found = parsed(line)
            if isinstance(found, str):
                batch.append(Problem(shown(transcript.path), found, number))
            else:
                batch.append((number, found))
            size += len(line)
            if len(batch) >= BATCH or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def read_meta(transcript: Transcript) -> dict[str, Any] | Problem | None:
    """What stands beside a transcript, as the entry that a store keeps; None without it."""
    if transcript.subpath is None or not transcript.meta.exists():
        return None
    found = parsed(transcript.meta.read_bytes())
    if isinstance(found, str):
        return Problem(shown(transcript.meta), found)
    return {**found, "type": METADATA}


def parsed(text: bytes) -> dict[str, Any] | str:
    """The object in a text, or what is wrong with it."""
    try:
        found = json.loads(text.decode())
    except UnicodeDecodeError:
        return "is not UTF-8"
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({error})"
    return found if isinstance(found, dict) else "is not a JSON object"


def place(folder: Path, project: str, session_id: str, subpath: str | None) -> Path:
    """Where a transcript belongs in a folder of projects. `ValueError` for names that are no
    plain names there, or lead out of it."""
    parts = [project, session_id, *(subpath.split("/") if subpath is not None else ())]
    for part in parts:
        if part in ("", ".", "..") or re.search(r"[\0/\\]", part) or ntpath.splitdrive(part)[0]:
            raise ValueError(f"{part!r} is no name for a file")
    path = folder.joinpath(*parts)
    path = path.with_name(path.name + LINES)
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{str(path)!r} leads out of the folder")
    return path


def write(path: Path, content: bytes, *, force: bool, mtime: int | None = None) -> Written:
    """Put a file in place as a whole. One that has more or other content is kept, unless forced;
    one whose content this continues is replaced."""
    with suppress(FileNotFoundError):
        there, new = _values(path.read_bytes()), _values(content)
        if there == new:
            return "unchanged"
        if not force and (there is None or new is None or new[: len(there)] != there):
            return "kept"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mtime is not None:
            os.utime(name, ns=(mtime * 1_000_000, mtime * 1_000_000))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return "written"


def _values(content: bytes) -> list[Any] | None:
    """What a file holds, one value or one to a line; None if it is something else."""
    try:
        return [json.loads(content)]
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in content.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None


def lines(entries: Iterable[Any]) -> bytes:
    """Entries as the CLI writes them, one to a line."""
    return b"".join(json_line(entry) + b"\n" for entry in entries)


def json_line(entry: Any) -> bytes:
    text = json.dumps(entry, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(entry, separators=(",", ":")).encode()
