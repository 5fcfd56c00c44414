"""A file that was made to be given out, in pieces; it goes with its folder when it was sent."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

PIECE = 1 << 18


async def pieces(path: Path) -> AsyncGenerator[bytes, None]:
    """A file in pieces; it is open only while one is read, since a reader may go at any time.
    Then the folder that it is in is removed."""
    try:
        offset = 0
        while piece := await asyncio.to_thread(_piece, path, offset):
            offset += len(piece)
            yield piece
    finally:
        await asyncio.to_thread(shutil.rmtree, path.parent, ignore_errors=True)


def _piece(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(PIECE)
