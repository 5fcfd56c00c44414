"""Clones the Git repositories of clients, and reads the files of one commit.

A repository is not trusted. It is cloned without a work tree, so that its filters, hooks,
submodules and links have no effect. Each git process has limits for memory, file size and time, and
the files of a repository are listed and checked before their content is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

SECONDS = 120  # for one repository
DISK = 256 << 20  # bytes of one file, such as a pack
MEMORY = 768 << 20  # bytes of address space of one process
LISTING = 16 << 20  # bytes of a list of files
SAID = 4_096  # bytes of git's error output that are kept
STALE = 3_600  # seconds after which a folder is left over from a killed process
PREFIX = "holdfast-git-"
PORTS = {"https": "443", "http": "80", "ssh": "22", "git": "9418", "file": ""}
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>[^/]*)(?P<path>/.*)?", re.S)
_HOST = re.compile(r"(?P<name>[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:.]+\])(?::(\d{1,5}))?")
_NAME = re.compile(r"[A-Za-z0-9._~+=-]+")
_HIDDEN = re.compile(r"[%\\?#@]")
# Limits for git and its child processes. A file that grows too large is an error for git.
_BOUNDED = (
    'trap "" XFSZ; ulimit -c 0; ulimit -v "$1" 2>/dev/null; ulimit -f "$2"; ulimit -t "$3"; '
    'shift 3; exec "$@"'
)
_CONFIG = """
[protocol]
    allow = never
[protocol "{scheme}"]
    allow = always
[http]
    followRedirects = false
    lowSpeedLimit = 1000
    lowSpeedTime = 30
[credential]
    helper =
[core]
    hooksPath = /dev/null
    bigFileThreshold = 1m
    packedGitWindowSize = 16m
    packedGitLimit = 64m
    deltaBaseCacheLimit = 16m
[pack]
    threads = 1
    windowMemory = 64m
[transfer]
    bundleURI = false
[gc]
    auto = 0
[maintenance]
    auto = false
"""


class AddressError(ValueError):
    """Raised for an invalid address; the message contains the reason."""


class GitError(Exception):
    """Raised if a repository cannot be used; the message contains the reason."""


class GitAddress(NamedTuple):
    """The address of a repository. Equal addresses refer to the same location."""

    scheme: str
    host: str
    port: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, url: str) -> GitAddress:
        """Parse a URL, or an absolute path on this machine. Raises `AddressError` if it is invalid
        or ambiguous: encoded characters, `..`, `//` and user names are not allowed."""
        if not url.isprintable() or url != url.strip():
            raise AddressError("contains spaces or invisible characters")
        if (found := _HIDDEN.search(url)) is not None:
            raise AddressError(f"contains {found[0]!r}: remove user names, queries and escapes")
        parts = _URL.fullmatch(f"file://{url}" if url.startswith("/") else url)
        if parts is None:
            raise AddressError("is neither scheme://host/path nor an absolute path")
        scheme = parts["scheme"].lower()
        if scheme not in PORTS:
            raise AddressError(f"uses {scheme!r}: use one of {', '.join(PORTS)}")
        host, port = _host(scheme, parts["host"])
        return cls(scheme, host, port, _names(scheme, parts["path"] or ""))

    def __str__(self) -> str:
        port = f":{self.port}" if self.port != PORTS[self.scheme] else ""
        return f"{self.scheme}://{self.host}{port}/{'/'.join(self.names)}"

    def is_below(self, allowed: GitAddress) -> bool:
        """Return whether this address is `allowed` or below it."""
        return self[:3] == allowed[:3] and self.names[: len(allowed.names)] == allowed.names


def _host(scheme: str, text: str) -> tuple[str, str]:
    if scheme == "file":
        if text:
            raise AddressError("has a host, which file:// does not allow")
        return "", ""
    found = _HOST.fullmatch(text)
    if found is None:
        raise AddressError(f"has the invalid host {text!r}")
    port = found[2] or PORTS[scheme]
    return found["name"].lower(), str(int(port))


def _names(scheme: str, path: str) -> tuple[str, ...]:
    names = path.removeprefix("/").removesuffix("/").split("/") if path.strip("/") else []
    if path.startswith("//") or any(name in ("", ".", "..") for name in names):
        raise AddressError("has an empty segment, '.' or '..' in its path")
    if scheme != "file" and not all(_NAME.fullmatch(name) for name in names):
        raise AddressError("has a character in its path other than a-z, A-Z, 0-9 and ._~+=-")
    return tuple(names)


# A clone


class GitBlob(NamedTuple):
    """A file of a commit: its id and size."""

    id: str
    size: int


@contextlib.asynccontextmanager
async def cloned(address: GitAddress, ref: str | None = None) -> AsyncGenerator[GitClone, None]:
    """Context manager that clones one commit, given by a branch or a tag, and removes the clone
    afterwards. Raises `GitError`."""
    program = await asyncio.to_thread(shutil.which, "git")
    if program is None:
        raise GitError("needs git, which is not installed on the server")
    folder = await asyncio.to_thread(_prepare, address.scheme)
    clone = GitClone(program, folder, address.scheme)
    try:
        async with asyncio.timeout(SECONDS):
            await clone.begin(str(address), ref)
            yield clone
    except TimeoutError:
        raise GitError(f"took longer than {SECONDS} seconds") from None
    finally:
        await asyncio.shield(asyncio.to_thread(_discard, folder))


class GitClone:
    """A bare repository in a temporary folder."""

    def __init__(self, program: str, folder: Path, scheme: str) -> None:
        self._program, self._folder, self._scheme = program, folder, scheme
        self.commit = ""

    async def begin(self, url: str, ref: str | None) -> None:
        branch = [] if ref is None else ["--branch", ref]
        how = ["--bare", "--quiet", "--depth", "1", "--single-branch", "--no-tags", "--template="]
        words = ["clone", *how, *branch, "--", url, "repository"]
        async with self._running(*words, cwd=self._folder, protocol=self._scheme) as process:
            said = await _all_of(process.stderr, SAID)
            if await process.wait() != 0:
                raise GitError(_failure(said))
        async with self._running("rev-parse", "--verify", "HEAD^{commit}") as process:
            self.commit = (await _all_of(process.stdout, SAID)).decode().strip()
            if await process.wait() != 0:
                raise GitError("contains no commit")

    async def list(self, subdir: str, entries: int) -> dict[str, GitBlob]:
        """Return the files below a folder of the commit, by path, without links and submodules.
        Raises `GitError` if there are more than this many entries of any kind."""
        found: dict[str, GitBlob] = {}
        count = 0
        tree = f"{self.commit}:{subdir}"
        async with self._running("ls-tree", "-r", "-t", "-l", "-z", tree) as process:
            async for line in _lines(process.stdout):
                count += 1
                if count > entries:
                    raise GitError(f"has more than {entries} files and folders")
                about, _, path = line.partition(b"\t")
                mode, kind, id, size = about.split()
                if kind == b"blob" and mode in (b"100644", b"100755", b"100664"):
                    found[_text(path)] = GitBlob(id.decode(), int(size))
            if await process.wait() != 0:
                raise GitError(f"has no folder {subdir!r}" if subdir else "cannot be read")
        return found

    async def read(self, blobs: Mapping[str, GitBlob]) -> dict[str, bytes]:
        """Read the content of files, by path. The sizes come from `list`."""
        found: dict[str, bytes] = {}
        async with self._running("cat-file", "--batch") as process:
            writing = asyncio.create_task(_write(process, [one.id for one in blobs.values()]))
            try:
                for path, blob in blobs.items():
                    found[path] = await _blob(process, blob)
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
        return found

    @contextlib.asynccontextmanager
    async def _running(
        self, *words: str, cwd: Path | None = None, protocol: str = "none"
    ) -> AsyncGenerator[Process, None]:
        """Context manager that runs a git process, and kills it and its child processes at the
        end."""
        bounds = (str(MEMORY >> 10), str(DISK >> 9), str(SECONDS))
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _BOUNDED, "sh", *bounds, self._program, *words),
            cwd=cwd or self._folder / "repository",
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": str(self._folder),
                "LC_ALL": "C",
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_ATTR_NOSYSTEM": "1",
                "GIT_ALLOW_PROTOCOL": protocol,
                "GIT_TERMINAL_PROMPT": "0",
                "GIT_ASKPASS": "true",
                "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
            },
            stdin=PIPE if words[0] == "cat-file" else DEVNULL,
            stdout=DEVNULL if words[0] == "clone" else PIPE,
            stderr=PIPE if words[0] == "clone" else DEVNULL,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(_ended(process))


async def _ended(process: Process) -> None:
    """Wait for a killed process to end. Reads its pipes while waiting, since a full pipe would
    block the process."""
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(1 << 16):
            pass
    await process.wait()


def _failure(said: bytes) -> str:
    text = said.decode(errors="replace").lower()
    if "file too large" in text:
        return f"is larger than {DISK >> 20} MiB"
    if "out of memory" in text or "malloc" in text or "mmap" in text:
        return f"needs more than {MEMORY >> 20} MiB of memory"
    return "could not be cloned"


async def _all_of(stream: asyncio.StreamReader | None, most: int) -> bytes:
    """Read the output of a process to its end, and return its last bytes."""
    assert stream is not None
    kept = b""
    while piece := await stream.read(1 << 16):
        kept = (kept + piece)[-most:]
    return kept


async def _lines(stream: asyncio.StreamReader | None) -> AsyncIterator[bytes]:
    """Yield the output of a process, split at NUL."""
    assert stream is not None
    rest, left = b"", LISTING
    while piece := await stream.read(1 << 16):
        left -= len(piece)
        if left < 0:
            raise GitError(f"has too many files: the list of its paths exceeds {LISTING >> 20} MiB")
        *whole, rest = (rest + piece).split(b"\0")
        for line in whole:
            yield line


async def _write(process: Process, ids: Collection[str]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write("".join(f"{id}\n" for id in ids).encode())
        await process.stdin.drain()
        process.stdin.close()


async def _blob(process: Process, blob: GitBlob) -> bytes:
    assert process.stdout is not None
    try:
        about = await process.stdout.readline()
        if about.split() != [blob.id.encode(), b"blob", str(blob.size).encode()]:
            raise GitError("cannot be read")
        data = await process.stdout.readexactly(blob.size + 1)
    except asyncio.IncompleteReadError as error:
        raise GitError("cannot be read") from error
    return data[:-1]


def _text(path: bytes) -> str:
    try:
        return path.decode()
    except UnicodeDecodeError as error:
        raise GitError(f"has a file whose name is not UTF-8: {path!r}") from error


def _prepare(scheme: str) -> Path:
    """Create a folder for one clone, which is also git's home folder. Folders that killed processes
    left behind are removed."""
    old = time.time() - STALE
    for other in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = other.lstat()
            if found.st_mtime < old and found.st_uid == os.getuid():
                shutil.rmtree(other, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    (folder / ".gitconfig").write_text(_CONFIG.format(scheme=scheme))
    return folder


def _discard(folder: Path) -> None:
    for _ in range(20):  # a killed process may still write for a moment
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)
