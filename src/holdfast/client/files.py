"""The files of a session's work folder, on its server."""

from __future__ import annotations

from .. import wire
from ..values.records import Restored
from .parts import RemotePart
from .transport import Query

BYTES, GZIP = "application/octet-stream", "application/gzip"


class FilesPart(RemotePart):
    """Files of a session, by paths from its work folder, which none of them leaves."""

    async def tree(self, path: str = ".", *, depth: int = 1) -> wire.Tree:
        """What is in a folder, and in those below it down to `depth`, 8 at most."""
        query: dict[str, str | int] = {"path": path, "depth": depth}
        return await self._place.call("GET", "/files/tree", wire.Tree, query=query)

    async def read(self, path: str) -> bytes:
        """A file's bytes (`NoSuchFile`)."""
        place = self._place
        return await place.transport.raw("GET", self._content, query={"path": path})

    async def write(self, path: str, data: bytes | str) -> wire.Written:
        """Write a file, whole or not at all; folders above it are made."""
        body = data.encode() if isinstance(data, str) else data
        call, query = self._place.transport.call, {"path": path}
        return await call("PUT", self._content, wire.Written, body=body, query=query, media=BYTES)

    async def edit(self, path: str, search: str, replace: str, *, all: bool = False) -> int:
        """Replace a text that is there once, or with `all` wherever it is; how often."""
        body = wire.EditFile(path=path, search=search, replace=replace, all=all)
        done = await self._place.call("POST", "/files/edit", wire.Edited, body=body)
        return done.replaced

    async def make(self, path: str) -> None:
        """Make a folder, and those above it."""
        await self._send("POST", "/files/folders", wire.MakeFolder(path=path))

    async def move(self, path: str, to: str) -> None:
        """Give a file or folder another path, where there is nothing yet."""
        await self._send("POST", "/files/move", wire.MoveFile(path=path, to=to))

    async def remove(self, path: str, *, all: bool = False) -> None:
        """Remove a file or an empty folder; with `all`, a folder with what is in it."""
        place = self._place
        query: Query = {"path": path, "all": all}
        await place.transport.raw("DELETE", f"{place.path}/files", query=query)

    async def archive(self) -> bytes:
        """All files as a .tar.gz, but links and what is in `.git`."""
        return await self._place.transport.raw("GET", f"{self._place.path}/files/archive")

    async def restore(self, archive: bytes) -> Restored:
        """Put the files of an archive into the folder, over those with the same path. It is
        refused whole (`InvalidValue`, `OutsideSandbox`) if anything in it is wrong."""
        call, path = self._place.transport.call, f"{self._place.path}/files/archive"
        return await call("PUT", path, Restored, body=archive, media=GZIP)

    @property
    def _content(self) -> str:
        return f"{self._place.path}/files/content"

    async def _send(self, method: str, path: str, body: wire.MakeFolder | wire.MoveFile) -> None:
        place = self._place
        await place.transport.raw(method, place.path + path, body=body)
