"""A session of Claude Code's on disk: its transcript, and its sub-agents' in a folder beside it.

Files are written each as a whole, and none that is there is touched.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import Fault, InvalidBundle, InvalidValue

LARGEST = 256 << 20  # bytes of all files together
FILES = 10_000

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}(?:/[A-Za-z0-9_-]{1,128}){0,4}", re.ASCII)


class ClaudeFiles(Struct, frozen=True, kw_only=True):
    """A session's files: its transcript, those of its sub-agents by name, and what is told of
    them (`.meta.json`)."""

    session: str
    main: bytes
    agents: dict[str, bytes] = {}
    about: dict[str, dict[str, Any]] = {}


ClaudeSource: TypeAlias = str | os.PathLike[str] | bytes | ClaudeFiles


def refused(code: str, path: str, problem: str) -> InvalidBundle:
    """The error for files of which no session can be made."""
    return InvalidBundle(faults=[Fault(code=code, path=path, problem=problem)])


def files_of(source: ClaudeSource) -> ClaudeFiles:
    """The files of a session, from the path of its `.jsonl` or the bytes of that alone. Blocks."""
    if isinstance(source, ClaudeFiles):
        return source
    if isinstance(source, bytes):
        return ClaudeFiles(session="", main=source)
    path = Path(source)
    try:
        return _read(path, path.with_suffix(""))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise refused("unreadable", "$", f"cannot be read ({reason})") from error


def _read(path: Path, folder: Path) -> ClaudeFiles:
    others = sorted(folder.glob("**/*.jsonl"))
    if len(others) > FILES:
        raise refused("too_large", "$", f"has more than {FILES} sub-agents")
    if sum(file.stat().st_size for file in (path, *others)) > LARGEST:
        raise refused("too_large", "$", f"has more than {LARGEST} bytes")
    agents: dict[str, bytes] = {}
    about: dict[str, dict[str, Any]] = {}
    for file in others:
        name = file.relative_to(folder).with_suffix("").as_posix()
        agents[name] = file.read_bytes()
        meta = file.with_suffix(".meta.json")
        if meta.is_file() and isinstance(found := _json(meta.read_bytes()), dict):
            about[name] = found
    return ClaudeFiles(session=path.stem, main=path.read_bytes(), agents=agents, about=about)


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


async def save_claude(files: ClaudeFiles, folder: str | os.PathLike[str]) -> list[Path]:
    """Write `SESSION.jsonl`, and `SESSION/subagents/…` beside it, below `folder`: all or none.
    `InvalidValue` where a file is there already, or a name would lead elsewhere."""
    return await asyncio.to_thread(_save, files, Path(folder))


def _save(files: ClaudeFiles, folder: Path) -> list[Path]:
    contents: dict[Path, bytes] = {}
    for name in (files.session, *files.agents):
        if not _NAME.fullmatch(name):
            remedy = "name it with letters and digits"
            raise InvalidValue(field="name", problem=f"is {name[:80]!r}", remedy=remedy)
    for name, text in files.agents.items():
        contents[folder / files.session / f"{name}.jsonl"] = text
    for name, about in files.about.items():
        contents[folder / files.session / f"{name}.meta.json"] = msgspec.json.encode(about)
    contents[folder / f"{files.session}.jsonl"] = files.main  # last: it makes the session seen
    if there := [path for path in contents if path.exists() or path.is_symlink()]:
        raise InvalidValue(
            field="folder", problem=f"has {there[0].name} already", remedy="name an empty folder"
        )
    written: list[Path] = []
    try:
        for path, content in contents.items():
            _put(path, content)
            written.append(path)
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return written


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)  # fails where somebody was first
    finally:
        Path(part).unlink(missing_ok=True)
