"""The sandbox port: where a session's tools read, write and run, and its values.

A `Sandbox` opens a `Place` for a session; all threads of one session share it. What kind
of place it is (a folder, a container, none) only the sandbox knows. Every method is
asynchronous and none blocks the event loop.
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
    """One command: text for a shell, or the words of a program, which no shell reads.
    `cwd` is relative to the place's folder, `timeout` is in seconds."""

    line: str | tuple[str, ...]
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: bytes | str | None = None
    timeout: float | None = None

    @classmethod
    def of(
        cls,
        line: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> Command:
        """The command that a call of `run` describes, if it can be run."""
        if not line:
            raise InvalidValue(field="command", problem="is empty", remedy="say what to run")
        if timeout is not None and not timeout > 0:
            raise InvalidValue(
                field="timeout", problem=f"is {timeout}", remedy="pass seconds above 0"
            )
        words = line if isinstance(line, str) else tuple(line)
        return cls(line=words, cwd=cwd, env=dict(env or {}), stdin=stdin, timeout=timeout)

    @property
    def input(self) -> bytes | None:
        return self.stdin.encode() if isinstance(self.stdin, str) else self.stdin

    def words(self, shell: str) -> builtins.list[str]:
        """The program and its arguments; never a login shell."""
        return [shell, "-c", self.line] if isinstance(self.line, str) else list(self.line)


class Ran(Struct, frozen=True):
    """How a command ended. It has an exit code or the signal that killed it; `truncated`
    says that it wrote more than was kept, of either stream."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    timed_out: bool = False
    truncated: bool = False


class Entry(Struct, frozen=True):
    """One file or folder of a place: its path from the folder, bytes, time of change in ms."""

    path: str
    type: Literal["file", "folder", "link", "other"]
    size: int
    changed: int
    mode: int


class Place(Protocol):
    """An open sandbox of one session. `folder` is the path of its files as a command sees it.

    Paths are relative to that folder, or absolute inside it. A path that leads out of it, by
    `..` or by a link, raises `OutsideSandbox`; whatever else fails raises `SandboxError`.
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
        """Run a command to its end, or until `timeout` seconds have passed (the sandbox has a
        default). `cwd` is made if it is not there. On a timeout and on cancellation the
        command is ended with all that it started before this returns."""
        ...

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        """A file's bytes; with `limit`, that many from its beginning at most."""
        ...

    async def write(
        self, path: str, data: bytes, *, append: bool = False, executable: bool = False
    ) -> None:
        """Write a file, whole or not at all, or add to its end; folders are made as needed. With
        `executable` it may be run as a command."""
        ...

    async def list(self, pattern: str = "**/*", *, limit: int) -> builtins.list[str]:
        """The files that match, relative to the folder, the same order each time, `limit` at
        most. `*` and `?` stay within a name, `**` is any number of folders, `{a,b}` is either.
        Links are not entered, nor `.git` and `node_modules` unless the pattern names them."""
        ...

    async def tree(
        self, path: str = ".", *, depth: int = 1, limit: int = 1_000
    ) -> builtins.list[Entry]:
        """What is in a folder, and in those below it down to `depth`, by path, `limit` at most.
        Links are shown as such and not entered."""
        ...

    async def make(self, path: str) -> None:
        """Make a folder, and those above it; one that is there is fine."""
        ...

    async def move(self, path: str, to: str) -> None:
        """Give a file or folder another path; folders above it are made. Refused where there
        is something already. A link is moved itself, not what it leads to."""
        ...

    async def remove(self, path: str, *, all: bool = False) -> None:
        """Remove a file, a link or an empty folder; with `all`, a folder with what is in it."""
        ...

    async def close(self, reason: Reason) -> None:
        """End what runs and let go. With "close" the files stay, with "delete" the session is
        being deleted, and `Sandbox.destroy` follows. Safe to call twice."""
        ...


class Sandbox(Protocol):
    """Where the places come from."""

    async def open(self, session: Key, *, agent: str, resources: Any) -> Place:
        """The place of a session, with the files that it left there before."""
        ...

    async def destroy(self, session: Scope) -> None:
        """Remove all that a deleted session left, open here or not. Safe to call twice."""
        ...


def digest(scope: Scope) -> str:
    """Names a session's place: ids are never part of a path or a name."""
    return hashlib.sha256(msgspec.json.encode((scope.tenant, scope.session))).hexdigest()


NO_SANDBOX = "there is no sandbox here; give the harness one, such as sandbox=LocalSandbox(folder)"


class NoSandbox:
    """No sandbox: every command ends with exit code 1, files raise `SandboxError`."""

    async def open(self, session: Key, *, agent: str, resources: Any) -> Nowhere:
        return Nowhere()

    async def destroy(self, session: Scope) -> None:
        return None


class Nowhere:
    """The place of a session without a sandbox."""

    folder = "/"

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # it ends the command, not the wait
    ) -> Ran:
        return Ran(stderr=NO_SANDBOX, exit_code=1)

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        raise SandboxError(problem=NO_SANDBOX)

    async def write(
        self, path: str, data: bytes, *, append: bool = False, executable: bool = False
    ) -> None:
        raise SandboxError(problem=NO_SANDBOX)

    async def list(self, pattern: str = "**/*", *, limit: int) -> builtins.list[str]:
        raise SandboxError(problem=NO_SANDBOX)

    async def tree(
        self, path: str = ".", *, depth: int = 1, limit: int = 1_000
    ) -> builtins.list[Entry]:
        raise SandboxError(problem=NO_SANDBOX)

    async def make(self, path: str) -> None:
        raise SandboxError(problem=NO_SANDBOX)

    async def move(self, path: str, to: str) -> None:
        raise SandboxError(problem=NO_SANDBOX)

    async def remove(self, path: str, *, all: bool = False) -> None:
        raise SandboxError(problem=NO_SANDBOX)

    async def close(self, reason: Reason) -> None:
        return None
