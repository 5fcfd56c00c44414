"""Middleware that runs before routing. It answers `HEAD` like `GET` without a body, rejects
forbidden CORS preflights in the usual error format, and closes a connection if the request body was
not read to the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, cast

from litestar import Litestar
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
ASKED = "holdfast.method"  # key in the ASGI scope for the original method, if it was replaced
LINGER, QUIET = 5.0, 1.0  # seconds to read the rest of a body: in total, and without new data
SIMPLE = ("accept", "accept-language", "content-language")  # headers that CORS always allows


class App(Litestar):
    """A Litestar app that leaves the ASGI scope unchanged for the app in which it is mounted."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        mine: Any = {**scope, "state": {**(scope.get("state") or {})}}
        await super().__call__(scope if scope["type"] == "lifespan" else mine, receive, send)


class OuterMiddleware:
    """Wraps the Litestar app with this middleware. `cors` lists the origins whose pages may send
    requests."""

    def __init__(self, app: ASGIApp, cors: CORSConfig | None, redactor: Redactor) -> None:
        self._app, self._cors, self._redactor = app, cors, redactor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"] if scope["type"] == ScopeType.HTTP else None
        if method is not None and (framing := _framing(scope)):
            exchange = UnreadBody(receive, send)
            receive, send = exchange.receive, exchange.send
            if len(framing) > 1:  # other ASGI servers may accept such a request
                await self._refuse(both_framings(), scope, send)
                return
        if method == "HEAD":
            # The server's own scope is not changed; the audit record contains the method HEAD.
            asked = cast(HTTPScope, {**scope, "method": "GET", ASKED: method})
            await self._app(asked, receive, HeadResponse(send).send)
        elif method == "OPTIONS" and (error := self._refused(Headers.from_scope(scope))):
            await self._refuse(error, scope, send)
        else:
            await self._app(scope, receive, send)

    def _refused(self, headers: Headers) -> HoldfastError | None:
        """Return the error for a CORS preflight that is not allowed, or None if it is allowed."""
        origin, cors = headers.get("origin"), self._cors
        if origin is None or cors is None:
            return None
        if not cors.is_origin_allowed(origin):
            return Forbidden(
                problem="this origin is not allowed (CORS): add it with --origin or the setting "
                "`origins`"
            )
        wished = headers.get("access-control-request-headers", "").split(",")
        known = {*cors.allow_headers, *SIMPLE}
        for name in (name.strip() for name in wished):
            if name and name.lower() not in known:
                return InvalidValue(
                    field=name[:100],
                    problem="is a header that is not allowed (CORS)",
                    remedy=f"use only {', '.join(sorted(known))}",
                )
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
    """Return the headers that define the length of an HTTP/1 request body; empty if there is no
    body."""
    if not str(scope.get("http_version", "1.1")).startswith("1"):
        return {}
    found = {name.lower(): value for name, value in scope["headers"] if name.lower() in FRAMING}
    return {} if found == {b"content-length": b"0"} else found


class UnreadBody:
    """Handles a request whose body may not be read to the end. If the response starts before the
    end of the body, the connection is closed, so that the remaining bytes are never parsed as
    another request. Before that, the remaining body is read for a few seconds, because a client
    that is disconnected while it is sending does not receive the response."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._open = True  # the body may have more data
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
        """Send the end of a response, after reading and discarding the remaining body."""
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


class HeadResponse:
    """Sends the headers of a response to a HEAD request and ends it, even if the response of GET
    would be an endless stream."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
