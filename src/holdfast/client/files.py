"""Access to the files of a session's work folder on the server."""

from __future__ import annotations

from .. import wire
from ..values.records import Restored
from .session_parts import RemotePart
from .transport import Query

BYTES, GZIP = "application/octet-stream", "application/gzip"


class FilesPart(RemotePart):
    """The files of a session. Paths are relative to its work folder and must stay inside it."""

    async def tree(self, path: str = ".", *, depth: int = 1) -> wire.Tree:
        """List the entries of a folder and of its subfolders, down to `depth` levels (at most
        8)."""
        query: dict[str, str | int] = {"path": path, "depth": depth}
        return await self._place.call("GET", "/files/tree", wire.Tree, query=query)

    async def read(self, path: str) -> bytes:
        """Return the bytes of a file. Raises `NoSuchFile`."""
        place = self._place
        return await place.transport.raw("GET", self._content, query={"path": path})

    async def write(self, path: str, data: bytes | str) -> wire.Written:
        """Write a file atomically; parent folders are created."""
        body = data.encode() if isinstance(data, str) else data
        call, query = self._place.transport.call, {"path": path}
        return await call("PUT", self._content, wire.Written, body=body, query=query, media=BYTES)

    async def edit(self, path: str, search: str, replace: str, *, all: bool = False) -> int:
        """Replace text that occurs once, or with `all`, every occurrence. Returns the number of
        replacements."""
        body = wire.EditFile(path=path, search=search, replace=replace, all=all)
        done = await self._place.call("POST", "/files/edit", wire.Edited, body=body)
        return done.replaced

    async def make(self, path: str) -> None:
        """Create a folder and its parents."""
        await self._send("POST", "/files/folders", wire.MakeFolder(path=path))

    async def move(self, path: str, to: str) -> None:
        """Move a file or folder to a path that does not exist yet."""
        await self._send("POST", "/files/move", wire.MoveFile(path=path, to=to))

    async def remove(self, path: str, *, all: bool = False) -> None:
        """Delete a file or an empty folder; with `all`, a folder with its contents."""
        place = self._place
        query: Query = {"path": path, "all": all}
        await place.transport.raw("DELETE", f"{place.path}/files", query=query)

    async def archive(self) -> bytes:
        """Return all files as a .tar.gz archive, except links and the contents of `.git`."""
        return await self._place.transport.raw("GET", f"{self._place.path}/files/archive")

    async def restore(self, archive: bytes) -> Restored:
        """Extract an archive into the folder; files with the same path are overwritten. If any
        entry is invalid, nothing is extracted. Raises `InvalidValue` or `OutsideSandbox`."""
        call, path = self._place.transport.call, f"{self._place.path}/files/archive"
        return await call("PUT", path, Restored, body=archive, media=GZIP)

    @property
    def _content(self) -> str:
        return f"{self._place.path}/files/content"

    async def _send(self, method: str, path: str, body: wire.MakeFolder | wire.MoveFile) -> None:
        place = self._place
        await place.transport.raw(method, place.path + path, body=body)
