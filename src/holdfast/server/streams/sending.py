"""Sends pieces of a response body over ASGI, until they end, or the client disconnects or stops
reading."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from ...cancellation import ended
from .outbox import PIECE

LOOK = 1.0  # seconds between two checks whether the client has stopped reading
STREAM = "text/event-stream"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}

Scope: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


class BodySender:
    """Sends one response body. A client that reads nothing for longer than `patience()` seconds is
    disconnected."""

    def __init__(
        self, chunks: AsyncGenerator[bytes, None], patience: Callable[[], float], send: Send
    ) -> None:
        self._chunks, self._patience, self._send = chunks, patience, send
        self._since: float | None = None  # when sending the current piece started

    async def run(self, receive: Receive) -> None:
        """Send the pieces. Returns when the body was sent, or as soon as nobody reads it."""
        sending = asyncio.create_task(self._all())
        others = asyncio.create_task(_left(receive)), asyncio.create_task(self._stalled())
        try:
            await asyncio.wait({sending, *others}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await ended(sending, *others)

    async def _all(self) -> None:
        async with contextlib.aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await self._piece(chunk, True)
                if len(chunk) >= PIECE:
                    await asyncio.sleep(0)  # let other tasks run
            await self._piece(b"", False)

    async def _piece(self, piece: bytes, more: bool) -> None:
        self._since = time.monotonic()
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})
        self._since = None

    async def _stalled(self) -> None:
        """Return as soon as the client has read nothing for too long."""
        while True:
            await asyncio.sleep(LOOK)
            since = self._since
            if since is not None and time.monotonic() - since >= self._patience():
                return


async def _left(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
