"""What stands before the routing: `HEAD`, which is a `GET` without its body; pages of other
origins that ask whether they may ask, refused in the one shape of all failures; and connections
that are closed where a body was not read to its end, since nobody knows what follows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, cast

from litestar.config.cors import CORSConfig
from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.types import (
    ASGIApp,
    HTTPResponseBodyEvent,
    HTTPScope,
    Message,
    Receive,
    Scope,
    Send,
)

from ...errors import Forbidden, HoldfastError, InvalidValue
from ...log.events import new_id
from ...redact import Redactor
from .errors import answer
from .headers import both_framings, guarded

FRAMING = (b"content-length", b"transfer-encoding")
ASKED = "holdfast.method"  # where a scope says what was asked, if not what is answered
LINGER, QUIET = 5.0, 1.0  # seconds that the rest of a body is read, in all and without a word
SIMPLE = ("accept", "accept-language", "content-language")  # headers that any page may send


class Front:
    """An app behind its front. `cors` are the origins that may ask, if there are any."""

    def __init__(self, app: ASGIApp, cors: CORSConfig | None, redactor: Redactor) -> None:
        self._app, self._cors, self._redactor = app, cors, redactor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"] if scope["type"] == ScopeType.HTTP else None
        if method is not None and (framing := _framing(scope)):
            exchange = Exchange(receive, send)
            receive, send = exchange.receive, exchange.send
            if len(framing) > 1:  # servers that read HTTP loosely let it through
                await self._refuse(both_framings(), scope, send)
                return
        if method == "HEAD":
            # The server's own scope stays as it is; who asks is told, and written down, with HEAD.
            asked = cast(HTTPScope, {**scope, "method": "GET", ASKED: method})
            await self._app(asked, receive, Headless(send).send)
        elif method == "OPTIONS" and (error := self._refused(Headers.from_scope(scope))):
            await self._refuse(error, scope, send)
        else:
            await self._app(scope, receive, send)

    def _refused(self, headers: Headers) -> HoldfastError | None:
        """Why a page may not ask what it wants to ask."""
        origin, cors = headers.get("origin"), self._cors
        if origin is None or cors is None:
            return None
        if not cors.is_origin_allowed(origin):
            problem = "pages of this origin may not ask this server: it is started with --origin"
            return Forbidden(problem=f"{problem} (or `origins`) for those that may")
        wished = headers.get("access-control-request-headers", "").split(",")
        known = {*cors.allow_headers, *SIMPLE}
        for name in (name.strip() for name in wished):
            if name and name.lower() not in known:
                remedy = f"send no others than {', '.join(sorted(known))}"
                return InvalidValue(field=name[:100], problem="is no header of ours", remedy=remedy)
        return None

    async def _refuse(self, error: HoldfastError, scope: Scope, send: Send) -> None:
        request = new_id()
        done = answer(error, scope, request, self._redactor)
        told = [*done.headers, ("content-length", str(len(done.body))), ("vary", "Origin")]
        named = [(name.encode(), value.encode("latin-1")) for name, value in told]
        headers = guarded(named, request)
        await send({"type": "http.response.start", "status": done.status, "headers": headers})
        await send({"type": "http.response.body", "body": done.body, "more_body": False})


def _framing(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """What a request of HTTP/1 says of the end of its body; empty where it has none."""
    if not str(scope.get("http_version", "1.1")).startswith("1"):
        return {}
    found = {name.lower(): value for name, value in scope["headers"] if name.lower() in FRAMING}
    return {} if found == {b"content-length": b"0"} else found


class Exchange:
    """A request with a body, and its answer. Where the answer begins before the body was read to
    its end, it says that the connection is closed, and so it is: nothing of the rest is taken for
    a request. The rest is read for a moment, since a client that is cut while it sends does not
    see what it was answered."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._open = True  # there may be more of the body
        self._closes = False

    async def receive(self) -> Any:
        message = await self._receive()
        more = message["type"] == "http.request" and message.get("more_body", False)
        self._open = self._open and bool(more)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._closes = self._open
            if self._closes:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        elif message["type"] == "http.response.body" and not message.get("more_body"):
            message = await self._last(message)
        await self._send(message)

    async def _last(self, message: HTTPResponseBodyEvent) -> HTTPResponseBodyEvent:
        """The end of an answer; before it, the rest of the body is read, and dropped."""
        if not (self._closes and self._open):
            return message
        await self._send({**message, "more_body": True})
        await self._drain()
        return {**message, "body": b""}

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while self._open:
                    async with asyncio.timeout(QUIET):
                        await self.receive()


class Headless:
    """Passes on how an answer begins, and is done then: also where it would go on for ever."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
