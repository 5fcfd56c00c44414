"""The sandbox interface: where a session's tools read and write files and run commands.

A `Sandbox` opens a `Place` for a session; all threads of the session share it. The rest of Holdfast
does not depend on the kind of sandbox (a folder, a container, none). All methods are asynchronous
and do not block the event loop.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import InvalidValue, SandboxError
from ...log.events import Key, Scope

Reason: TypeAlias = Literal["close", "delete"]


class Command(Struct, frozen=True, kw_only=True):
    """One command: text for a shell, or a program and its arguments, run without a shell. `cwd` is
    relative to the sandbox's folder, `timeout` is in seconds.

    See [the sandbox](../sandbox.md).
    """

    line: str | tuple[str, ...]
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: bytes | str | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not self.line:
            raise InvalidValue(
                field="command", problem="is empty", remedy="pass the command to run"
            )
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidValue(
                field="timeout", problem=f"is {self.timeout}", remedy="pass a number of seconds > 0"
            )

    @property
    def input(self) -> bytes | None:
        return self.stdin.encode() if isinstance(self.stdin, str) else self.stdin

    def words(self, shell: str) -> builtins.list[str]:
        """Return the program and its arguments. The program is never a login shell."""
        return [shell, "-c", self.line] if isinstance(self.line, str) else list(self.line)


class Ran(Struct, frozen=True):
    """The result of a command: its exit code, or the signal that killed it. `truncated` means that
    not all output of stdout or stderr was kept.

    See [the sandbox](../sandbox.md).
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    timed_out: bool = False
    truncated: bool = False


class DirectoryEntry(Struct, frozen=True):
    """A file or folder in a sandbox. `path` is relative to the sandbox's folder, `size` is in
    bytes, `changed` is the time of the last change in ms.

    See [the sandbox](../sandbox.md).
    """

    path: str
    type: Literal["file", "folder", "link", "other"]
    size: int
    changed: int
    mode: int


class Place(Protocol):
    """The open sandbox of one session. `folder` is the path of its folder as commands see it.

    Paths are relative to that folder, or absolute inside it. A path that leads outside of it, by
    `..` or by a link, raises `OutsideSandbox`; any other failure raises `SandboxError`.

    See [the sandbox](../sandbox.md).
    """

    folder: str

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # it ends the command, not the wait
    ) -> Ran:
        """Run a command until it ends or `timeout` seconds have passed (the sandbox has a
        default). `cwd` is created if it does not exist. On timeout and on cancellation, the
        command and every process it started are ended before this returns."""
        ...

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Return the bytes of a file; with `limit`, at most the first `limit` bytes."""
        ...

    async def write(
        self, path: str, data: bytes, *, append: bool = False, executable: bool = False
    ) -> None:
        """Write a file atomically, or append to it; creates folders as needed. `executable` sets
        the file's executable bits."""
        ...

    async def list(self, pattern: str = "**/*", *, limit: int) -> builtins.list[str]:
        """Return the paths of the files that match a pattern, relative to the folder, in a stable
        order, at most `limit`. `*` and `?` match within a name, `**` matches any number of folders,
        `{a,b}` matches a or b. Links are not followed; `.git` and `node_modules` are skipped unless
        the pattern contains them."""
        ...

    async def tree(
        self, path: str = ".", *, depth: int = 1, limit: int = 1_000
    ) -> builtins.list[DirectoryEntry]:
        """Return the entries of a folder and its subfolders down to `depth`, sorted by path, at
        most `limit`. Links are listed as links and not followed."""
        ...

    async def make(self, path: str) -> None:
        """Create a folder and its parents; it may already exist."""
        ...

    async def move(self, path: str, to: str) -> None:
        """Move a file or folder; creates the parent folders of `to`. Fails if `to` exists. A link
        itself is moved, not its target."""
        ...

    async def remove(self, path: str, *, all: bool = False) -> None:
        """Remove a file, a link or an empty folder; with `all`, a folder and its contents."""
        ...

    async def close(self, reason: Reason) -> None:
        """End running commands and release the sandbox. With "close" the files stay; with "delete"
        the session is being deleted, and `Sandbox.destroy` is called next. Safe to call twice."""
        ...


class Sandbox(Protocol):
    """Opens a `Place` for each session, and removes the files of deleted sessions.

    See [the sandbox](../sandbox.md).
    """

    async def open(self, session: Key, *, agent: str, resources: Any) -> Place:
        """Open the sandbox of a session. Files from its earlier use are still there."""
        ...

    async def destroy(self, session: Scope) -> None:
        """Remove all files of a deleted session, even if its sandbox is not open in this process.
        Safe to call twice."""
        ...


def digest(scope: Scope) -> str:
    """Return a hash of a session's tenant and id, for names of folders and containers. The names
    then do not contain the id."""
    return hashlib.sha256(msgspec.json.encode((scope.tenant, scope.session))).hexdigest()


NO_SANDBOX = "no sandbox is configured; pass one to the harness: sandbox=LocalSandbox(folder)"


class NoSandbox:
    """Used if no sandbox is configured: every command ends with exit code 1, and file methods raise
    `SandboxError`.

    See [the sandbox](../sandbox.md).
    """

    async def open(self, session: Key, *, agent: str, resources: Any) -> NoSandboxPlace:
        return NoSandboxPlace()

    async def destroy(self, session: Scope) -> None:
        return None


class NoSandboxPlace:
    """Used for a session if no sandbox is configured: every command ends with exit code 1, and file
    methods raise `SandboxError`."""

    folder = "/"

    async def run(self, *arguments: Any, **options: Any) -> Ran:
        return Ran(stderr=NO_SANDBOX, exit_code=1)

    async def _refuse(self, *arguments: Any, **options: Any) -> Any:
        raise SandboxError(problem=NO_SANDBOX)

    read = write = list = tree = make = move = remove = _refuse

    async def close(self, reason: Reason) -> None:
        return None
