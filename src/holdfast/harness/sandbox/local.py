"""A sandbox on this machine: a folder for each session, and commands that run in it.

It keeps paths of tools inside the folder, and limits the time and output of commands. It does not
isolate them: a command runs as the user of this process, with all of that user's permissions.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ...errors import InvalidValue, SandboxError
from ...log.events import Key, Scope
from .files import Files
from .folder import SandboxFolder
from .port import Command, Ran, Reason
from .process import Running
from .removal import IsGone, SweptFolders, WorkFolders, sweep


class LocalSandbox:
    """One folder below `dir` for each session; with `shared`, `dir` itself for all.

    `env` is the environment of commands: "minimal" is only PATH, HOME, LANG and TMPDIR, a dict is
    added to those, "inherit" is the environment of this process. `timeout`, in seconds, is the
    default for a command. `output_limit` is how many bytes of each stream are kept. To end a
    command, it is terminated first, and killed `kill_grace` seconds later. `shell` runs commands
    that are text: by default bash if it is installed, else sh.
    """

    def __init__(
        self,
        dir: str | os.PathLike[str],
        *,
        env: Literal["minimal", "inherit"] | Mapping[str, str] = "minimal",
        timeout: float = 30.0,
        output_limit: int = 1_000_000,
        kill_grace: float = 1.0,
        shell: str | None = None,
        shared: bool = False,
    ) -> None:
        if os.name != "posix":
            raise SandboxError(problem="a local sandbox needs Linux or macOS")
        if isinstance(env, str) and env not in ("minimal", "inherit"):
            raise InvalidValue(
                field="env", problem=f"is {env!r}", remedy='pass "minimal", "inherit" or a dict'
            )
        for field, value in {"timeout": timeout, "output_limit": output_limit}.items():
            if not value > 0:
                raise InvalidValue(field=field, problem=f"is {value}", remedy="pass more than 0")
        self._dir = Path(dir)
        self._sessions = WorkFolders(self._dir)
        self._env = env
        self._timeout = timeout
        self._limit = output_limit
        self._grace = kill_grace
        self._shell = shell
        self._shared = shared

    async def open(self, session: Key, *, agent: str, resources: Any) -> LocalPlace:
        return await asyncio.to_thread(self._open, session.scope)

    async def condemn(self, session: Scope, store: str) -> None:
        """Record that a session in this store is about to be deleted. If this process crashes
        before it removes the folder, `sweep` removes it."""
        if not self._shared:
            await asyncio.to_thread(self._sessions.condemn, session, store)

    async def destroy(self, session: Scope) -> None:
        """Remove the session's folder; a shared folder stays. Raises `SandboxError` for what could
        not be removed; it is renamed, and `sweep` tries again."""
        if not self._shared:
            await asyncio.to_thread(self._sessions.remove, session)

    async def sweep(self, is_gone: IsGone) -> SweptFolders:
        """Remove what is left of deleted sessions."""
        return (
            SweptFolders() if self._shared else await sweep(self._sessions, self.destroy, is_gone)
        )

    def _open(self, scope: Scope) -> LocalPlace:
        try:
            home, temporary = self._folders(scope)
        except OSError as error:
            raise SandboxError(problem=f"cannot create a folder: {error.strerror}") from error
        return LocalPlace(
            SandboxFolder(str(home)),
            env=self._environment(home, temporary),
            shell=self._shell or shutil.which("bash") or "/bin/sh",
            timeout=self._timeout,
            limit=self._limit,
            grace=self._grace,
        )

    def _folders(self, scope: Scope) -> tuple[Path, Path]:
        self._dir.mkdir(parents=True, exist_ok=True)
        root = self._dir.resolve()
        if self._shared:
            return root, Path(tempfile.gettempdir())
        mine = root / self._sessions.of(scope).name
        for folder in (mine, mine / "files", mine / "tmp"):
            folder.mkdir(mode=0o700, exist_ok=True)
        return mine / "files", mine / "tmp"

    def _environment(self, home: Path, temporary: Path) -> dict[str, str]:
        if self._env == "inherit":
            return dict(os.environ)
        found = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TMPDIR": str(temporary),
        }
        return found if isinstance(self._env, str) else {**found, **self._env}


class LocalPlace(Files):
    """The open folder of one session."""

    def __init__(
        self,
        folder: SandboxFolder,
        *,
        env: Mapping[str, str],
        shell: str,
        timeout: float,
        limit: int,
        grace: float,
    ) -> None:
        super().__init__(folder)
        self.folder = folder.path
        self._env = env
        self._shell = shell
        self._timeout = timeout
        self._limit = limit
        self._grace = grace
        self._running: set[Running] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # it ends the command, not the wait
    ) -> Ran:
        if self._closed:
            raise SandboxError(problem="the sandbox is closed")
        asked = Command.of(command, cwd=cwd, env=env, stdin=stdin, timeout=timeout)
        running = self._of(asked)
        self._running.add(running)
        self._idle.clear()
        try:
            return await running.result()
        finally:
            self._running.discard(running)
            if not self._running:
                self._idle.set()

    def _of(self, asked: Command) -> Running:
        return Running(
            asked.words(self._shell),
            where=lambda: self._enter(asked.cwd or "."),
            env={**self._env, **asked.env},
            stdin=asked.input,
            timeout=asked.timeout or self._timeout,
            limit=self._limit,
            grace=self._grace,
        )

    @contextmanager
    def _enter(self, cwd: str) -> Iterator[str]:
        """A path to the open folder, which stays valid if the folder is renamed."""
        with self._folder.enter(cwd) as (opened, names):
            path = f"/proc/self/fd/{opened}"
            yield path if os.path.isdir(path) else os.path.join(self.folder, names)

    async def close(self, reason: Reason) -> None:
        self._closed = True
        for running in self._running:
            running.stop()
        await self._idle.wait()
