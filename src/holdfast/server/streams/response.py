"""Sends a stream as an HTTP response, in pieces, until the stream ends, or the client disconnects
or stops reading."""

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

LOOK = 1.0  # seconds between two checks whether the client has stopped reading
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class StreamResponse(Response[Any]):
    """A response that is sent in pieces, by default server-sent events. `left` is closed when the
    response ends, for any reason. A client that reads nothing for longer than its `patience` is
    disconnected."""

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
        self.chunks, self.left, self.patience = chunks, left, patience

    def to_asgi_response(self, *arguments: Any, **given: Any) -> ASGIResponse:
        return StreamSending(self, {**(given.get("headers") or {}), **self.headers})


class StreamSending(ASGIResponse):
    """Sends a `StreamResponse` until it ends, or the client disconnects or stops reading."""

    __slots__ = ("_response", "_since")
    _should_set_content_length = False

    def __init__(self, response: StreamResponse, headers: dict[str, str]) -> None:
        super().__init__(media_type=str(response.media_type), headers=headers, status_code=200)
        self._response = response
        self._since: float | None = None  # when sending the current piece started

    async def send_body(self, send: Send, receive: Receive) -> None:
        sending = asyncio.create_task(self._send(send))
        others = asyncio.create_task(_left(receive)), asyncio.create_task(self._stalled())
        try:
            await asyncio.wait({sending, *others}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await ended(sending, *others)
            await self._response.left.aclose()

    async def _send(self, send: Send) -> None:
        async with contextlib.aclosing(self._response.chunks) as chunks:
            async for chunk in chunks:
                await self._piece(send, chunk, True)
                if len(chunk) >= PIECE:
                    await asyncio.sleep(0)  # let other tasks run
            await self._piece(send, b"", False)

    async def _piece(self, send: Send, piece: bytes, more: bool) -> None:
        self._since = time.monotonic()
        await send({"type": "http.response.body", "body": piece, "more_body": more})
        self._since = None

    async def _stalled(self) -> None:
        """Return as soon as the client has read nothing for too long."""
        while True:
            await asyncio.sleep(LOOK)
            since = self._since
            if since is not None and time.monotonic() - since >= self._response.patience():
                return


async def _left(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
