"""The file operations of a place whose files are in a folder on this machine."""

from __future__ import annotations

import asyncio
import builtins

from ...errors import SandboxError
from .folder import SandboxFolder
from .port import DirectoryEntry


class Files:
    """The file methods of a `Place`, for one folder. Each call runs in a thread."""

    def __init__(self, folder: SandboxFolder, *, read_only: bool = False) -> None:
        self._folder = folder
        self._read_only = read_only

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
