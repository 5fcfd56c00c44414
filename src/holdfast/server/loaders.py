"""Loaders fetch the agents that clients request: from a folder of the server, from a Git
repository, or from the request itself. The files of an agent are written into the session's work
folder.

A loader restricts what can be loaded: only folders below its root, or only addresses with allowed
prefixes. Links are skipped, and loaded files are never executed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from ..errors import InvalidValue
from ..harness import MAX_DEPTH
from ..wire.files import File
from .uploads import git, manifest
from .uploads.manifest import AgentManifest

FILES, BYTES = 2_000, 64 << 20  # the limits of one agent
ENTRIES = 10_000  # files, folders and links of one agent, at most
CLONES = 4  # repositories at a time
_REF = re.compile(r"[A-Za-z0-9][\w./-]{0,199}")


class AgentIdentity(Struct, frozen=True, kw_only=True):
    """The identity of a loaded agent. `sha` is the commit, or a hash of all its files."""

    name: str
    version: str
    sha: str
    loader: str


class LoadedAgent(Struct, frozen=True, kw_only=True):
    """A loaded agent: its identity and its manifest."""

    identity: AgentIdentity
    described: AgentManifest


class AgentFiles(NamedTuple):
    """The files of an agent by path, and the Git commit they come from, if any."""

    files: dict[str, bytes]
    commit: str | None = None


class Loader(Protocol):
    """Fetches the files of an agent. `check` rejects an invalid source before anything is
    fetched."""

    name: str

    def check(self, source: Mapping[str, Any]) -> None: ...

    async def fetch(self, source: Mapping[str, Any]) -> AgentFiles: ...


async def fetch(
    loader: Loader, source: Mapping[str, Any]
) -> tuple[LoadedAgent, Mapping[str, bytes]]:
    """Fetch an agent and its files with a loader."""
    loader.check(source)
    found = await loader.fetch(source)
    check_files({path: len(data) for path, data in found.files.items()})
    name, text = _description(found.files)
    described = manifest.read(text, name)
    identity = AgentIdentity(
        name=described.name,
        version=described.version,
        sha=found.commit or _hash(found.files),
        loader=loader.name,
    )
    return LoadedAgent(identity=identity, described=described), found.files


# The loaders


class InlineLoader:
    """Takes the agent from the request: `{"manifest": {…}, "files": [{"path", "content"}]}`."""

    name = "inline"

    def check(self, source: Mapping[str, Any]) -> None:
        _only(source, "manifest", "files")
        manifest.described(source.get("manifest"))
        self._files(source)

    async def fetch(self, source: Mapping[str, Any]) -> AgentFiles:
        files = {file.path: file.data() for file in self._files(source)}
        return AgentFiles({**files, "agent.json": msgspec.json.encode(source["manifest"])})

    def _files(self, source: Mapping[str, Any]) -> list[File]:
        try:
            files = msgspec.convert(source.get("files", ()), list[File])
        except msgspec.ValidationError as error:
            raise InvalidValue(
                field="files", problem=str(error), remedy="pass path, content and encoding"
            ) from error
        check_uploads(files)
        return files


class LocalLoader:
    """Takes the agent from a folder below `root` on the server: `{"path": "support"}`."""

    name = "local"

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root)

    def check(self, source: Mapping[str, Any]) -> None:
        _only(source, "path")
        check_path(_text(source, "path"))

    async def fetch(self, source: Mapping[str, Any]) -> AgentFiles:
        return AgentFiles(await asyncio.to_thread(_read, self._root, _text(source, "path")))


class GitLoader:
    """Takes the agent from a Git repository at or below one of the `allowed` addresses: `{"url": …,
    "ref": …, "subdir": …}`. An address is a URL or an absolute path of the server."""

    name = "git"

    def __init__(self, *allowed: str) -> None:
        if not allowed:
            raise InvalidValue(
                field="allowed",
                problem="is empty",
                remedy="list at least one URL prefix, such as https://git.example/agents/",
            )
        self._allowed = [_address(one, "allowed") for one in allowed]
        self._turns = asyncio.Semaphore(CLONES)

    def check(self, source: Mapping[str, Any]) -> None:
        _only(source, "url", "ref", "subdir")
        address = _address(_text(source, "url"), "url")
        if not any(address.is_below(one) for one in self._allowed):
            raise InvalidValue(
                field="url",
                problem="is not allowed by this server",
                remedy="ask the operator of the server",
            )
        ref = source.get("ref")
        if ref is not None and (not isinstance(ref, str) or not _REF.fullmatch(ref)):
            raise InvalidValue(
                field="ref",
                problem="is not a valid branch or tag",
                remedy="pass the name of a branch or a tag",
            )
        if source.get("subdir") is not None:
            check_path(_text(source, "subdir"))

    async def fetch(self, source: Mapping[str, Any]) -> AgentFiles:
        address = _address(_text(source, "url"), "url")
        subdir = "/".join(PurePosixPath(source.get("subdir") or ".").parts)
        try:
            async with self._turns, git.cloned(address, source.get("ref")) as clone:
                listed = await clone.list(subdir, ENTRIES)
                blobs = {path: blob for path, blob in listed.items() if not _is_hidden(path)}
                check_files({path: blob.size for path, blob in blobs.items()})
                return AgentFiles(await clone.read(blobs), clone.commit)
        except git.GitError as error:
            remedy = "check url, ref and subdir"
            raise InvalidValue(field="url", problem=str(error), remedy=remedy) from error


def _address(text: str, field: str) -> git.GitAddress:
    try:
        return git.GitAddress.of(text)
    except git.AddressError as error:
        remedy = "pass an address such as https://git.example/agents/"
        raise InvalidValue(field=field, problem=str(error), remedy=remedy) from error


# Files


def check_uploads(files: Sequence[File]) -> None:
    """Reject a request with too many files or with paths that leave the folder."""
    if len(files) > FILES:
        raise InvalidValue(
            field="files",
            problem=f"has {len(files)} entries",
            remedy=f"send at most {FILES} files",
            limit=FILES,
        )
    for file in files:
        check_path(file.path)


def check_files(sizes: Mapping[str, int]) -> None:
    """Reject too many files, too large files, and paths that leave the folder."""
    for path in sizes:
        check_path(path)
    if len(sizes) > FILES or sum(sizes.values()) > BYTES:
        raise _too_much()


def _too_much() -> InvalidValue:
    return InvalidValue(
        field="source",
        problem=f"has more than {FILES} files, or more than {BYTES >> 20} MiB in total",
        remedy="remove some files, or make them smaller",
        limit=BYTES,
    )


def _read(root: Path, path: str) -> dict[str, bytes]:
    """Read all files of a folder below `root`, by path. Links and special files are skipped."""
    folder = (root / check_path(path)).resolve()
    if not folder.is_relative_to(root.resolve()) or not folder.is_dir():
        raise InvalidValue(
            field="path",
            problem=f"folder {path!r} does not exist",
            remedy="pass the path of an agent's folder",
        )
    sizes = dict(_sizes(folder))
    check_files(sizes)
    found: dict[str, bytes] = {}
    left = BYTES
    for name in sorted(sizes):
        found[name] = _bytes(folder / name, left)
        left -= len(found[name])
    return found


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the path and size of each file of a folder."""
    folders, count = [""], 0
    while folders:
        above = folders.pop()
        with os.scandir(folder / above) as entries:
            for entry in entries:
                path = f"{above}{entry.name}"
                if (count := count + 1) > ENTRIES:
                    raise _too_much()
                if entry.is_dir(follow_symlinks=False) and not _is_hidden(entry.name):
                    check_path(path)
                    folders.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False).st_size


def _bytes(file: Path, left: int) -> bytes:
    """Read a regular file. Links are not followed. Raises `InvalidValue` if it has more than `left`
    bytes."""
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(opened, "rb") as stream:
        data = stream.read(left + 1) if stat.S_ISREG(os.fstat(opened).st_mode) else b""
    if len(data) > left:
        raise _too_much()
    return data


def _is_hidden(path: str) -> bool:
    """Return whether a path is in a `.git` folder."""
    return any(name.lower() == ".git" for name in path.split("/"))


def _description(found: Mapping[str, bytes]) -> tuple[str, bytes]:
    for name in manifest.NAMES:
        if name in found:
            return name, found[name]
    names = " or ".join(manifest.NAMES)
    raise InvalidValue(
        field="source", problem=f"has no {names}", remedy="add one in its top-level folder"
    )


def _hash(found: Mapping[str, bytes]) -> str:
    parts = [(path, hashlib.sha256(data).hexdigest()) for path, data in sorted(found.items())]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def check_path(path: Any) -> str:
    """Return the path if it is a valid relative path; otherwise raise `InvalidValue`."""
    parts = PurePosixPath(path).parts if isinstance(path, str) else ()
    if not isinstance(path, str) or not path.strip() or path.startswith("/") or ".." in parts:
        raise InvalidValue(
            field="path",
            problem=f"{path!r} is not inside the agent's folder",
            remedy="pass a path relative to that folder",
        )
    if "\0" in path or "\\" in path:
        raise InvalidValue(
            field="path",
            problem="contains a NUL character or a backslash",
            remedy="separate folders by /",
        )
    if len(parts) > MAX_DEPTH:
        raise InvalidValue(
            field="path",
            problem=f"has {len(parts)} path segments",
            remedy=f"use at most {MAX_DEPTH} segments",
            limit=MAX_DEPTH,
        )
    return path


def _text(source: Mapping[str, Any], field: str) -> str:
    if not isinstance(value := source.get(field), str) or not value:
        raise InvalidValue(
            field=field, problem="is missing", remedy="pass a string that is not empty"
        )
    return value


def _only(source: Mapping[str, Any], *fields: str) -> None:
    if more := sorted(set(source) - set(fields)):
        raise InvalidValue(
            field="source",
            problem=f"has unknown fields ({', '.join(more)})",
            remedy=f"use only {', '.join(fields)}",
        )
