"""A file that was made to be given out, in pieces. It goes with its folder once it was sent, or
whoever asked for it has gone."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from ..streams.outbox import PIECE
from ..streams.response import Streamed


def given_out(
    path: Path, media_type: str, headers: dict[str, str], patience: Callable[[], float]
) -> Streamed:
    """An answer with a file, which is alone in its folder. `patience` is that of `Streamed`."""
    left = contextlib.AsyncExitStack()
    left.push_async_callback(asyncio.to_thread, shutil.rmtree, path.parent, ignore_errors=True)
    return Streamed(_pieces(path), left, patience=patience, media_type=media_type, headers=headers)


async def _pieces(path: Path) -> AsyncGenerator[bytes, None]:
    """It is open only while a piece is read, since a reader may go at any time."""
    offset = 0
    while piece := await asyncio.to_thread(_piece, path, offset):
        offset += len(piece)
        yield piece


def _piece(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(PIECE)
