"""Where agents come from that a client names: a folder of the server's, a repository, or the
request itself. A loader puts their files into the session's work folder and says which they are.

What may be loaded stands in the loader: folders below its root, addresses that begin as it
allows. Links are left out, and nothing that is loaded is executed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from ..errors import InvalidValue
from ..harness.sandbox import Place
from ..harness.sandbox.folder import DEPTH
from ..wire.files import File
from . import manifest
from .manifest import Described

FILES, BYTES = 2_000, 64 << 20  # of one agent, at most
CLONING = 120.0  # seconds that a repository may take
_REF = re.compile(r"[A-Za-z0-9][\w./-]{0,199}")
_GIT = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_ASKPASS": "true"}


class Identity(Struct, frozen=True, kw_only=True):
    """Which agent was loaded: `sha` is the commit, or a hash over all of its files."""

    name: str
    version: str
    sha: str
    loader: str


class Loaded(Struct, frozen=True, kw_only=True):
    """An agent that was loaded."""

    identity: Identity
    described: Described


class Fetched(NamedTuple):
    """An agent's files by path, and the commit that they are of, if they are of one."""

    files: dict[str, bytes]
    commit: str | None = None


class Loader(Protocol):
    """Brings an agent's files. `check` refuses a source before any work is done for it."""

    name: str

    def check(self, source: Mapping[str, Any]) -> None: ...

    async def fetch(self, source: Mapping[str, Any]) -> Fetched: ...


async def load(loader: Loader, source: Mapping[str, Any], place: Place) -> Loaded:
    """Put an agent's files into a session's folder; the same agent again changes nothing."""
    loaded, files = await fetch(loader, source)
    for path, data in files.items():
        await place.write(path, data)
    return loaded


async def fetch(loader: Loader, source: Mapping[str, Any]) -> tuple[Loaded, Mapping[str, bytes]]:
    """An agent and its files, which are not written anywhere yet."""
    loader.check(source)
    found = await loader.fetch(source)
    name, text = _description(found.files)
    described = manifest.read(text, name)
    identity = Identity(
        name=described.name,
        version=described.version,
        sha=found.commit or _hash(found.files),
        loader=loader.name,
    )
    return Loaded(identity=identity, described=described), found.files


async def attach(files: Sequence[File], place: Place) -> None:
    """Write what a request brings over what was loaded."""
    if len(files) > FILES:
        raise InvalidValue(
            field="files", problem=f"are {len(files)}", remedy=f"send at most {FILES}", limit=FILES
        )
    written = [(file.path, file.data()) for file in files]
    for path, data in written:
        await place.write(path, data)


# The loaders


class InlineLoader:
    """The agent is in the request: `{"manifest": {…}, "files": [{"path", "content"}]}`."""

    name = "inline"

    def check(self, source: Mapping[str, Any]) -> None:
        _only(source, "manifest", "files")
        manifest.described(source.get("manifest"))
        self._files(source)

    async def fetch(self, source: Mapping[str, Any]) -> Fetched:
        files = {file.path: file.data() for file in self._files(source)}
        return Fetched({**files, "agent.json": msgspec.json.encode(source["manifest"])})

    def _files(self, source: Mapping[str, Any]) -> list[File]:
        try:
            files = msgspec.convert(source.get("files", ()), list[File])
        except msgspec.ValidationError as error:
            raise InvalidValue(
                field="files", problem=str(error), remedy="give path, content and encoding"
            ) from error
        for file in files:
            check_path(file.path)
        return files


class LocalLoader:
    """The agent is in a folder below `root` on the server: `{"path": "support"}`."""

    name = "local"

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root)

    def check(self, source: Mapping[str, Any]) -> None:
        _only(source, "path")
        check_path(_text(source, "path"))

    async def fetch(self, source: Mapping[str, Any]) -> Fetched:
        return Fetched(await asyncio.to_thread(_read, self._root, _text(source, "path")))


class GitLoader:
    """The agent is in a repository whose address begins with one of `allowed`:
    `{"url": …, "ref": …, "subdir": …}`."""

    name = "git"

    def __init__(self, *allowed: str) -> None:
        if not allowed:
            raise InvalidValue(
                field="allowed", problem="is empty", remedy="name beginnings of addresses"
            )
        self._allowed = allowed

    def check(self, source: Mapping[str, Any]) -> None:
        _only(source, "url", "ref", "subdir")
        url = _text(source, "url")
        odd = url.startswith("-") or ".." in url or "@" in url or not url.isprintable()
        if odd or " " in url or not url.startswith(self._allowed):
            raise InvalidValue(
                field="url", problem="is not allowed here", remedy="ask whoever runs the server"
            )
        if (ref := source.get("ref")) is not None and not _REF.fullmatch(str(ref)):
            raise InvalidValue(field="ref", problem="is not one", remedy="name a branch or a tag")
        if source.get("subdir") is not None:
            check_path(_text(source, "subdir"))

    async def fetch(self, source: Mapping[str, Any]) -> Fetched:
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="holdfast-"))
        try:
            commit = await self._clone(source, folder / "clone")
            files = await asyncio.to_thread(_read, folder / "clone", source.get("subdir") or ".")
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return Fetched(files, commit)

    async def _clone(self, source: Mapping[str, Any], folder: Path) -> str:
        ref = ["--branch", str(source["ref"])] if source.get("ref") else []
        safe = ["-c", "protocol.ext.allow=never", "-c", "core.hooksPath=/dev/null"]
        url = _text(source, "url")
        await _git(*safe, "clone", "--depth", "1", "--quiet", *ref, "--", url, str(folder))
        return (await _git("-C", str(folder), "rev-parse", "HEAD")).strip()


async def _git(*words: str) -> str:
    program = await asyncio.to_thread(shutil.which, "git")
    if program is None:
        raise InvalidValue(
            field="loader", problem="git is not installed here", remedy="install it on the server"
        )
    running = await asyncio.create_subprocess_exec(
        program,
        *words,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": os.devnull, **_GIT},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(CLONING):
            out, _ = await running.communicate()
    except TimeoutError:
        raise _not_loaded("took too long") from None
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    if running.returncode != 0:
        raise _not_loaded("could not be cloned")
    return out.decode(errors="replace")


def _not_loaded(problem: str) -> InvalidValue:
    return InvalidValue(field="url", problem=problem, remedy="see that url and ref are right")


# Files


def _read(root: Path, path: str) -> dict[str, bytes]:
    """All files of a folder below `root`, by path; links and what is no file are left out."""
    folder = (root / check_path(path)).resolve()
    if not folder.is_relative_to(root.resolve()) or not folder.is_dir():
        problem, remedy = "is no folder of an agent", "name one that is"
        raise InvalidValue(field="path", problem=problem, remedy=remedy)
    found: dict[str, bytes] = {}
    left = BYTES
    for file in _paths(folder):
        data = file.read_bytes()
        left -= len(data)
        found[file.relative_to(folder).as_posix()] = data
        if left < 0 or len(found) > FILES:
            problem = f"has more than {FILES} files or {BYTES} bytes"
            raise InvalidValue(field="source", problem=problem, remedy="name a smaller one")
    return found


def _paths(folder: Path) -> Iterator[Path]:
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(files):
            path = Path(above, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _description(found: Mapping[str, bytes]) -> tuple[str, bytes]:
    for name in manifest.NAMES:
        if name in found:
            return name, found[name]
    names = " or ".join(manifest.NAMES)
    raise InvalidValue(field="source", problem=f"has no {names}", remedy="add one at its top")


def _hash(found: Mapping[str, bytes]) -> str:
    parts = [(path, hashlib.sha256(data).hexdigest()) for path, data in sorted(found.items())]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def check_path(path: Any) -> str:
    """A relative path that leads nowhere else."""
    parts = PurePosixPath(path).parts if isinstance(path, str) else ()
    if not isinstance(path, str) or not path.strip() or path.startswith("/") or ".." in parts:
        raise InvalidValue(
            field="path", problem=f"is {path!r}", remedy="give one relative to the agent's folder"
        )
    if "\0" in path or "\\" in path:
        raise InvalidValue(field="path", problem="holds a character it may not", remedy="use /")
    if len(parts) > DEPTH:
        problem, remedy = f"has {len(parts)} names", f"use at most {DEPTH}"
        raise InvalidValue(field="path", problem=problem, remedy=remedy, limit=DEPTH)
    return path


def _text(source: Mapping[str, Any], field: str) -> str:
    if not isinstance(value := source.get(field), str) or not value:
        raise InvalidValue(field=field, problem="is missing", remedy="give a text")
    return value


def _only(source: Mapping[str, Any], *fields: str) -> None:
    if more := sorted(set(source) - set(fields)):
        remedy = f"a source of this loader has: {', '.join(fields)}"
        raise InvalidValue(field="source", problem=f"has {', '.join(more)}", remedy=remedy)
