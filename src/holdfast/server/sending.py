"""A stream as an answer of HTTP: sent piece by piece, until it is over, its reader has gone, or its
reader has not taken anything for a while."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from litestar.response import Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Send

from ..stores.patience import ended
from .edge import STREAM

STALL = 60.0  # seconds that a piece may take: whoever is slower comes back with its cursor
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Streamed(Response[Any]):
    """An answer that comes in pieces: server-sent events, unless it is said what else. `left` is
    closed when it is over, however that came, also before its first piece."""

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        left: contextlib.AsyncExitStack,
        *,
        media_type: str = STREAM,
        headers: Mapping[str, str] = HEADERS,
    ) -> None:
        super().__init__(None, media_type=media_type, headers=dict(headers), status_code=200)
        self._chunks, self._left = chunks, left

    def to_asgi_response(self, *arguments: Any, **given: Any) -> ASGIResponse:
        headers = {**(given.get("headers") or {}), **self.headers}
        return Sending(self._chunks, self._left, str(self.media_type), headers)


class Sending(ASGIResponse):
    """The same, as it is sent."""

    __slots__ = ("_chunks", "_left", "_sending", "_sent")
    _should_set_content_length = False

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        left: contextlib.AsyncExitStack,
        media_type: str,
        headers: dict[str, str],
    ) -> None:
        super().__init__(media_type=media_type, headers=headers, status_code=200)
        self._chunks, self._left = chunks, left
        self._sent, self._sending = 0, False

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
                self._sent += 1
                self._sending = True
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                self._sending = False
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stalled(self) -> None:
        """Wait until a piece has not left for as long as it may take."""
        sent = -1
        while not (self._sending and sent == self._sent):
            sent = self._sent
            await asyncio.sleep(STALL)


async def _left(receive: Receive) -> None:
    """Wait until the reader has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
