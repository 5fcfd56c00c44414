"""A response that sends a temporary file in pieces. The file and its folder are deleted when the
file has been sent or the client has disconnected."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from ..streams.outbox import PIECE
from ..streams.response import StreamResponse


class MadeFile:
    """A temporary file that is sent as a response. It is the only file in its folder."""

    def __init__(self, path: Path, media_type: str, patience: Callable[[], float]) -> None:
        self.path, self._media_type, self._patience = path, media_type, patience

    def response(self, headers: dict[str, str]) -> StreamResponse:
        """Return a response that sends the file and then deletes it."""
        left = contextlib.AsyncExitStack()
        left.push_async_callback(
            asyncio.to_thread, shutil.rmtree, self.path.parent, ignore_errors=True
        )
        return StreamResponse(
            _pieces(self.path),
            left,
            patience=self._patience,
            media_type=self._media_type,
            headers=headers,
        )


@contextlib.asynccontextmanager
async def made_file(
    name: str, media_type: str, patience: Callable[[], float]
) -> AsyncGenerator[MadeFile, None]:
    """Context manager that yields a temporary file for the caller to write; its folder is removed
    if the block fails. `patience` is passed to `StreamResponse`."""
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="holdfast-response-"))
    try:
        yield MadeFile(folder / name, media_type, patience)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, folder)
        raise


async def _pieces(path: Path) -> AsyncGenerator[bytes, None]:
    """Yield the content of the file in pieces. The file is open only while a piece is read, since
    the client may disconnect at any time."""
    offset = 0
    while piece := await asyncio.to_thread(_piece, path, offset):
        offset += len(piece)
        yield piece


def _piece(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(PIECE)
