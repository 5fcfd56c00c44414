"""A stream as an answer of HTTP: sent piece by piece, until it is over, its reader has gone, or its
reader has not taken anything for a while."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from litestar.response import Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Send

from ...cancellation import ended
from ..http.middleware import STREAM
from .outbox import PIECE

LOOK = 1.0  # seconds between two looks whether a reader takes nothing any more
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Streamed(Response[Any]):
    """An answer that comes in pieces: server-sent events, unless it is said what else. `left` is
    closed when it is over, however that came, also before its first piece. A reader that takes
    nothing for longer than its `patience` is disconnected."""

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        left: contextlib.AsyncExitStack,
        *,
        patience: Callable[[], float],
        media_type: str = STREAM,
        headers: Mapping[str, str] = HEADERS,
    ) -> None:
        super().__init__(None, media_type=media_type, headers=dict(headers), status_code=200)
        self._chunks, self._left, self._patience = chunks, left, patience

    def to_asgi_response(self, *arguments: Any, **given: Any) -> ASGIResponse:
        headers = {**(given.get("headers") or {}), **self.headers}
        return Sending(self._chunks, self._left, self._patience, str(self.media_type), headers)


class Sending(ASGIResponse):
    """The same, as it is sent."""

    __slots__ = ("_chunks", "_left", "_patience", "_since")
    _should_set_content_length = False

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        left: contextlib.AsyncExitStack,
        patience: Callable[[], float],
        media_type: str,
        headers: dict[str, str],
    ) -> None:
        super().__init__(media_type=media_type, headers=headers, status_code=200)
        self._chunks, self._left, self._patience = chunks, left, patience
        self._since: float | None = None  # when the piece was begun that is being sent

    async def send_body(self, send: Send, receive: Receive) -> None:
        sending = asyncio.create_task(self._send(send))
        others = asyncio.create_task(_left(receive)), asyncio.create_task(self._stalled())
        try:
            await asyncio.wait({sending, *others}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await ended(sending, *others)
            await self._left.aclose()

    async def _send(self, send: Send) -> None:
        async with contextlib.aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await self._piece(send, chunk, True)
                if len(chunk) >= PIECE:
                    await asyncio.sleep(0)  # others are to have a turn
            await self._piece(send, b"", False)

    async def _piece(self, send: Send, piece: bytes, more: bool) -> None:
        self._since = time.monotonic()
        await send({"type": "http.response.body", "body": piece, "more_body": more})
        self._since = None

    async def _stalled(self) -> None:
        """Wait until a piece has not left for as long as it may take."""
        while True:
            await asyncio.sleep(LOOK)
            if self._since is not None and time.monotonic() - self._since >= self._patience():
                return


async def _left(receive: Receive) -> None:
    """Wait until the reader has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
