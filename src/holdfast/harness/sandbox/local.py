"""A sandbox on this machine: a folder for each session, and commands that run in it.

It keeps a tool's paths inside the folder and a command's time and output within bounds. It
is a guard rail and no prison: a command runs as the user that we are, and may read, write
and reach what that user may.
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
    """Folders below `dir`, one for each session, or `dir` itself for all with `shared`.

    `env` is what a command finds in its environment: "minimal" is PATH, HOME, LANG and TMPDIR
    alone, a dict is added to those, "inherit" is everything that this process has. `timeout`,
    in seconds, holds for a command that names none. Of each stream `output_limit` bytes are
    kept. A command that must end is asked to, and killed `kill_grace` seconds later. Text is
    run by `shell`: bash where there is one, else sh.
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
        """Write down that a session in this store is being deleted, before it is: `sweep` removes
        its folder if this process is killed before it does."""
        if not self._shared:
            await asyncio.to_thread(self._sessions.condemn, session, store)

    async def destroy(self, session: Scope) -> None:
        """Remove the session's folder; one that all share stays. `SandboxError` says what could
        not be removed: it is out of the way, and `sweep` tries again."""
        if not self._shared:
            await asyncio.to_thread(self._sessions.remove, session)

    async def sweep(self, is_gone: IsGone) -> SweptFolders:
        """Remove what deleted sessions have left."""
        return (
            SweptFolders() if self._shared else await sweep(self._sessions, self.destroy, is_gone)
        )

    def _open(self, scope: Scope) -> LocalPlace:
        try:
            home, temporary = self._folders(scope)
        except OSError as error:
            raise SandboxError(problem=f"cannot make a folder: {error.strerror}") from error
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
    """The folder of one session, open."""

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
        """A folder by a path that leads there whatever becomes of its name."""
        with self._folder.enter(cwd) as (opened, names):
            path = f"/proc/self/fd/{opened}"
            yield path if os.path.isdir(path) else os.path.join(self.folder, names)

    async def close(self, reason: Reason) -> None:
        self._closed = True
        for running in self._running:
            running.stop()
        await self._idle.wait()
