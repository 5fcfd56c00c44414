"""What is no HTTP at all, refused in the same shape as everything else. Such a request reaches no
app: the protocol answers it."""

from __future__ import annotations

import asyncio

import msgspec
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ..errors import InvalidValue
from ..wire import failed
from .failure import JSON

HEAD = (
    "HTTP/1.1 400 Bad Request\r\n"
    "content-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n"
)


class Protocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc]  # which of two is found at run time
    """uvicorn's protocol, with our words for what it refuses."""

    transport: asyncio.Transport

    def send_400_response(self, msg: str) -> None:
        """Answer, and close the connection: where the next request begins is not known."""
        error = InvalidValue(
            field="request",
            problem="is no HTTP/1.1 that can be read",
            remedy="send a request line and headers as they should be, and no longer than 64 KiB",
        )
        body = msgspec.json.encode(failed(error))
        self.transport.write(HEAD.format(JSON, len(body)).encode() + body)
        self.transport.close()
