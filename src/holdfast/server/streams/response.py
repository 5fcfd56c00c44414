"""Sends a stream as an HTTP response of the server, in pieces, until the stream ends, or the client
disconnects or stops reading."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from litestar.response import Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Send

from .sending import HEADERS, STREAM, BodySender


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

    __slots__ = ("_response",)
    _should_set_content_length = False

    def __init__(self, response: StreamResponse, headers: dict[str, str]) -> None:
        super().__init__(media_type=str(response.media_type), headers=headers, status_code=200)
        self._response = response

    async def send_body(self, send: Send, receive: Receive) -> None:
        response = self._response
        try:
            await BodySender(response.chunks, response.patience, send).run(receive)
        finally:
            await response.left.aclose()
