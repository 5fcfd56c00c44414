"""The files of a Claude Code session. `SESSION.jsonl` is the main transcript. The folder `SESSION`
has a `.jsonl` for each sub-agent, and a `.meta.json` with its description. Blocking.

`save_claude` writes each file completely and never changes existing files.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ...errors import InvalidValue
from ..atomic_file import write_file
from ..faults import invalid, unreadable
from ..json_values import JsonObject
from .entries import parse_line

LINES, META = ".jsonl", ".meta.json"
MAX_BYTES = 256 << 20  # maximum size of all files together
MAX_FILES = 10_000

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}(?:/[A-Za-z0-9_-]{1,128}){0,4}", re.ASCII)


class ClaudeFiles(Struct, frozen=True, kw_only=True):
    """The files of a session: its transcript, the transcripts of its sub-agents by name, and
    their descriptions (`.meta.json`).

    See [other formats](../interchange.md).
    """

    session: str
    main: bytes
    agents: dict[str, bytes] = {}
    about: dict[str, JsonObject] = {}


ClaudeSource: TypeAlias = str | os.PathLike[str] | bytes | ClaudeFiles


def session_folder(main: Path) -> Path:
    """Return the folder with the sub-agents of a session."""
    return main.with_name(main.name.removesuffix(LINES))


def meta_path(path: Path) -> Path:
    """Return the path of the `.meta.json` of a sub-agent's transcript."""
    return path.with_name(path.name.removesuffix(LINES) + META)


def subagent_paths(main: Path) -> dict[str, Path]:
    """Return the transcript paths of a session's sub-agents by name, sorted. A sub-agent that has
    only a `.meta.json` is included.
    """
    folder = session_folder(main)
    found: dict[str, Path] = {}
    for path in folder.glob("**/*"):
        for suffix in (LINES, META):
            stem = path.name.removesuffix(suffix)
            if stem and stem != path.name and path.is_file():
                name = path.with_name(stem).relative_to(folder).as_posix()
                found[name] = path.with_name(stem + LINES)
    return dict(sorted(found.items()))


def files_of(source: ClaudeSource) -> ClaudeFiles:
    """Read the files of a session, from the path of its `.jsonl` or from the bytes of that file."""
    if isinstance(source, ClaudeFiles):
        return source
    if isinstance(source, bytes):
        return ClaudeFiles(session="", main=source)
    try:
        return _read(Path(source))
    except OSError as error:
        raise unreadable(error, "unreadable") from error


def _read(path: Path) -> ClaudeFiles:
    agents = {name: file for name, file in subagent_paths(path).items() if file.is_file()}
    if len(agents) > MAX_FILES:
        raise invalid("too_large", "$", f"has more than {MAX_FILES} sub-agents")
    if sum(file.stat().st_size for file in (path, *agents.values())) > MAX_BYTES:
        raise invalid("too_large", "$", f"has more than {MAX_BYTES} bytes")
    about = {
        name: meta
        for name, file in agents.items()
        if (described := meta_path(file)).is_file()
        and isinstance(meta := parse_line(described.read_bytes()), dict)
    }
    return ClaudeFiles(
        session=path.stem,
        main=path.read_bytes(),
        agents={name: file.read_bytes() for name, file in agents.items()},
        about=about,
    )


async def save_claude(files: ClaudeFiles, folder: str | os.PathLike[str]) -> list[Path]:
    """Write `SESSION.jsonl` and the folder `SESSION` below `folder`: all files or none. Raises
    `InvalidValue` if one of them exists or a name is not a plain file name.

    See [other formats](../interchange.md).
    """
    return await asyncio.to_thread(_save, files, Path(folder))


def _save(files: ClaudeFiles, folder: Path) -> list[Path]:
    for name in (files.session, *files.agents):
        if not _NAME.fullmatch(name):
            raise InvalidValue(
                field="name",
                problem=f"is {name[:80]!r}",
                remedy="use letters, digits, '_' and '-' only",
            )
    main = folder / f"{files.session}{LINES}"
    inside = session_folder(main)
    contents = {inside / f"{name}{LINES}": text for name, text in files.agents.items()}
    for name, about in files.about.items():
        contents[inside / f"{name}{META}"] = msgspec.json.encode(about)
    contents[main] = files.main  # last: with it the session becomes visible
    if existing := [path for path in contents if os.path.lexists(path)]:
        raise InvalidValue(
            field="folder",
            problem=f"already contains {existing[0].name}",
            remedy="choose an empty folder",
        )
    written: list[Path] = []
    try:
        for path, content in contents.items():
            write_file(path, content, replace=False)
            written.append(path)
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return written
