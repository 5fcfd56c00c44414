"""A sandbox on this machine: a folder for each session, and commands that run in it.

It keeps the paths of file tools inside the folder, and limits the time and output of commands. It
does not isolate commands: a command runs as the user of this process, with all of that user's
permissions.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ...errors import InvalidValue, SandboxError
from ...log.events import Key, Scope
from .folder import SandboxFolder
from .folder_sandbox import FolderPlace, FolderSandbox
from .port import Command, Ran, Reason
from .process import Running


class LocalSandbox(FolderSandbox):
    """A sandbox with one folder below `dir` for each session; with `shared`, all sessions use `dir`
    itself.

    `env` is the environment of commands: "minimal" is only PATH, HOME, LANG and TMPDIR, a dict is
    added to these, and "inherit" is the environment of this process. `timeout` is the default time
    limit of a command, in seconds. `output_limit` is the number of bytes of each stream that are
    kept. A command that must end is terminated, and killed `kill_grace` seconds later. `shell` is
    the program that runs commands given as text: by default bash if it is installed, else sh.

    See [the sandbox](../sandbox.md).
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
                raise InvalidValue(
                    field=field, problem=f"is {value}", remedy="pass a number above 0"
                )
        super().__init__(Path(dir), shared=shared)
        self._env = env
        self.timeout = timeout
        self.limit = output_limit
        self.grace = kill_grace
        self._shell = shell

    @property
    def shell(self) -> str:
        """The program that runs commands given as text."""
        return self._shell or shutil.which("bash") or "/bin/sh"

    async def open(self, session: Key, *, agent: str, resources: Any) -> LocalPlace:
        return await asyncio.to_thread(self._open, session.scope)

    def _open(self, scope: Scope) -> LocalPlace:
        try:
            home, temporary = self._folders(scope)
        except OSError as error:
            raise SandboxError(problem=f"cannot create a folder: {error.strerror}") from error
        return LocalPlace(self, SandboxFolder(str(home)), self._environment(home, temporary))

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


class LocalPlace(FolderPlace):
    """The open sandbox of one session: its folder on this machine."""

    def __init__(
        self, sandbox: LocalSandbox, folder: SandboxFolder, env: Mapping[str, str]
    ) -> None:
        super().__init__(folder)
        self.folder = folder.path
        self._sandbox, self._env = sandbox, env
        self._shell = sandbox.shell
        self._idle = asyncio.Event()
        self._idle.set()

    async def _run(self, asked: Command) -> Ran:
        self._idle.clear()
        try:
            return await self._result(self._process(asked))
        finally:
            if not self._running:
                self._idle.set()

    def _process(self, asked: Command) -> Running:
        return Running(
            asked.words(self._shell),
            where=lambda: self._enter(asked.cwd or "."),
            env={**self._env, **asked.env},
            stdin=asked.input,
            timeout=asked.timeout or self._sandbox.timeout,
            limit=self._sandbox.limit,
            grace=self._sandbox.grace,
        )

    @contextmanager
    def _enter(self, cwd: str) -> Iterator[str]:
        """Yield a path to the open folder. On Linux it stays valid if the folder is renamed."""
        with self._folder.enter(cwd) as (opened, names):
            path = f"/proc/self/fd/{opened}"
            yield path if os.path.isdir(path) else os.path.join(self.folder, names)

    async def close(self, reason: Reason) -> None:
        self._stop()
        await self._idle.wait()
