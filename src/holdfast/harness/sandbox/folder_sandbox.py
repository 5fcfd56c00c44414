"""Base classes of the sandboxes that keep files in folders on this machine: the folders of
sessions, file operations, and running commands."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import SandboxError
from ...log.events import Scope
from .folder import SandboxFolder
from .port import Command, DirectoryEntry, Ran
from .process import Running
from .removal import IsGone, SweptFolders, WorkFolders, sweep


class FolderSandbox:
    """A sandbox with a folder below `dir` for each session; with `shared`, all sessions use `dir`
    itself."""

    def __init__(self, dir: Path, *, shared: bool) -> None:
        self._dir, self._shared = dir, shared
        self._sessions = WorkFolders(dir)

    async def condemn(self, session: Scope, store: str) -> None:
        """Record that a session in this store is about to be deleted. If this process crashes
        before it removes the folder, `sweep` removes it."""
        if not self._shared:
            await asyncio.to_thread(self._sessions.condemn, session, store)

    async def destroy(self, session: Scope) -> None:
        """Remove the session's folder. A shared folder is not removed. Raises `SandboxError` if
        something could not be removed; `sweep` tries again later."""
        if not self._shared:
            await asyncio.to_thread(self._sessions.remove, session)

    async def sweep(self, is_gone: IsGone) -> SweptFolders:
        """Remove folders that remain from deleted sessions."""
        if self._shared:
            return SweptFolders()
        return await sweep(self._sessions, self.destroy, is_gone)


class FolderPlace:
    """A `Place` whose files are in one folder. Each file method runs in a thread."""

    def __init__(self, folder: SandboxFolder, *, read_only: bool = False) -> None:
        self._folder = folder
        self._read_only = read_only
        self._running: set[Running] = set()
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
        line = command if isinstance(command, str) else tuple(command)
        asked = Command(line=line, cwd=cwd, env=dict(env or {}), stdin=stdin, timeout=timeout)
        if self._closed:
            raise SandboxError(problem="the sandbox is closed")
        return await self._run(asked)

    async def _run(self, asked: Command) -> Ran:
        raise NotImplementedError

    async def _result(self, running: Running) -> Ran:
        """Run a process and return its result. `_stop` ends it early."""
        self._running.add(running)
        try:
            return await running.result()
        finally:
            self._running.discard(running)

    def _stop(self) -> None:
        """Reject further commands, and end the running commands."""
        self._closed = True
        for running in self._running:
            running.stop()

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        return await asyncio.to_thread(self._folder.read, path, limit)

    async def write(
        self, path: str, data: bytes, *, append: bool = False, executable: bool = False
    ) -> None:
        self._check_writable(path)
        folder = self._folder
        await asyncio.to_thread(folder.write, path, data, append=append, executable=executable)

    async def list(self, pattern: str = "**/*", *, limit: int) -> builtins.list[str]:
        return await asyncio.to_thread(self._folder.list, pattern, limit)

    async def tree(
        self, path: str = ".", *, depth: int = 1, limit: int = 1_000
    ) -> builtins.list[DirectoryEntry]:
        return await asyncio.to_thread(self._folder.tree, path, depth, limit)

    async def make(self, path: str) -> None:
        self._check_writable(path)
        await asyncio.to_thread(self._folder.make, path)

    async def move(self, path: str, to: str) -> None:
        self._check_writable(path)
        await asyncio.to_thread(self._folder.move, path, to)

    async def remove(self, path: str, *, all: bool = False) -> None:
        self._check_writable(path)
        await asyncio.to_thread(self._folder.remove, path, all=all)

    def _check_writable(self, path: str) -> None:
        if self._read_only:
            raise SandboxError(problem=f"{path!r}: the workspace is read-only", path=path)
