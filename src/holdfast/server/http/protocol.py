"""Strict parsing of HTTP/1.1. An ambiguous request is rejected with an error in the usual format,
and its connection is closed; the request never reaches the app."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...errors import InvalidValue
from ...wire import failed
from .errors import JSON
from .headers import both_framings

HEAD = (
    "HTTP/1.1 400 Bad Request\r\n"
    "content-type: {}\r\ncontent-length: {}\r\nx-content-type-options: nosniff\r\n"
    "connection: close\r\n\r\n"
)
LONGEST = 64 << 10  # bytes of a request line and its headers
LEFT = 60.0  # seconds after which a response that the client does not read is dropped
_LONE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")  # a line that does not end with CR LF
_FOLDED = re.compile(rb"\n[ \t]")  # a header that continues on the next line


class StrictConnection(h11.Connection):
    """Parses requests strictly, as RFC 9112 defines them. Otherwise a proxy could parse a malformed
    request differently, and treat some of its bytes as the next request. `fault` is the error of a
    rejected request."""

    fault: InvalidValue | None = None
    _chunked = False

    def next_event(self) -> Any:
        begins = self.their_state is h11.IDLE
        looks = begins or (self._chunked and self.their_state is h11.SEND_BODY)
        before = self.trailing_data[0] if looks else b""
        if begins:
            self._check_lines(before.partition(b"\r\n\r\n")[0])
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._check_framing(event)
        elif isinstance(event, h11.EndOfMessage) and looks and not begins:
            self._check_lines(before[: len(before) - len(self.trailing_data[0])])
        return event

    def _check_lines(self, text: bytes) -> None:
        if _LONE.search(text):
            self._refuse(
                "request", "has a line that does not end with CR LF", "end every line with CR LF"
            )
        if _FOLDED.search(text):
            self._refuse(
                "request",
                "has a header that continues on the next line",
                "send each header on one line",
            )

    def _check_framing(self, request: h11.Request) -> None:
        names = {name for name, _ in request.headers}
        self._chunked = b"transfer-encoding" in names
        if self._chunked and b"content-length" in names:
            self.fault = both_framings()
            raise h11.RemoteProtocolError(str(self.fault))
        if self._chunked and request.http_version < b"1.1":
            self._refuse("transfer-encoding", "is not allowed in HTTP/1.0", "use HTTP/1.1")

    def _refuse(self, field: str, problem: str, remedy: str) -> None:
        self.fault = InvalidValue(field=field, problem=problem, remedy=remedy)
        raise h11.RemoteProtocolError(str(self.fault))


class Protocol(H11Protocol):
    """uvicorn's protocol, with Holdfast's error responses for invalid requests. A connection with
    an unfinished response is closed without waiting for a client that does not read."""

    conn: StrictConnection

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = StrictConnection(h11.SERVER, LONGEST)
        self._served, self.app = self.app, self._answer

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._served(scope, receive, send)
        finally:
            cycle = self.cycle
            unfinished = cycle.response_started and not cycle.response_complete
            if unfinished and not cycle.disconnected:
                self._reset()
                await asyncio.sleep(0)  # let the request cycle notice the disconnect

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._drop_later()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._drop_later()

    def _drop_later(self) -> None:
        """Drop a closing connection after a while, even if the client does not read."""
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self.loop.call_later(LEFT, self._reset)

    def _reset(self) -> None:
        """Reset the connection immediately and discard all buffered data. A normal close would wait
        until the client has read that data."""
        line = self.transport.get_extra_info("socket")
        if line is not None and line.fileno() >= 0:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Send the error response and close the connection, since it is unknown where the next
        request starts."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the app can no longer respond
            cycle.message_event.set()
            if cycle.response_started:
                self._reset()
                return
        error = self.conn.fault or InvalidValue(
            field="request",
            problem="is not valid HTTP/1.1",
            remedy="send a request line and headers as RFC 9112 defines them, at most 64 KiB",
        )
        body = msgspec.json.encode(failed(error))
        self.transport.write(HEAD.format(JSON, len(body)).encode() + body)
        self.transport.close()
