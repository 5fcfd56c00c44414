"""The route for MCP over streamable HTTP. It is stateless: any replica can handle any message. A
tool call becomes a request to this server with the caller's scopes."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote, urlencode

import msgspec
from litestar import Request, Response, post
from litestar.openapi.datastructures import ResponseSpec

from ...errors import InvalidValue, MissingExtra, NoRoute
from ...wire import error_of
from ...wire import mcp as protocol
from ..http.context import Context
from ..http.middleware import CHANGES, replayed

# Headers that are about the message itself. The request of a tool has all others, since any of them
# may say who the caller is.
OWN: tuple[bytes, ...] = (
    *(b"accept", b"accept-", b"connection", b"content-", b"expect", b"idempotency-key", b"if-"),
    *(b"last-event-id", b"mcp-", b"range", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
)
ANSWER = ResponseSpec(protocol.RpcResponse, description="The response to a request.")
SILENT = ResponseSpec(None, description="A notification was accepted.")


class Caught:
    """A response that is kept instead of sent."""

    def __init__(self) -> None:
        self.status, self.body = 500, bytearray()
        self.headers: dict[str, str] = {}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            for name, value in message["headers"]:
                self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")


@post(
    "/mcp",
    status_code=200,
    opt={"once": "own", "stream": True, "lasts": True},
    operation_id="mcp",
    responses={200: ANSWER, 202: SILENT},
)
async def mcp(ctx: Context, request: Request[Any, Any, Any]) -> Response[bytes]:
    """Accept an MCP message (streamable HTTP, JSON responses, no sessions). It needs a key;
    each call of a tool needs the scopes of the request that it makes."""
    body = request.scope["state"].get("body", b"")
    if not body:
        raise InvalidValue(field="body", problem="is missing", remedy="send an MCP message")
    try:
        manage, secure = await asyncio.to_thread(_sdk)  # importing it takes a second
        server = protocol.server(_ask(request), ctx.service.version)
    except (ImportError, MissingExtra):
        raise NoRoute(path=request.scope["path"]) from None
    manager = manage(
        server,
        stateless=True,
        json_response=True,
        # The middleware has authenticated the request, and checked its origin and its size.
        security_settings=secure(enable_dns_rebinding_protection=False),
    )
    caught = Caught()
    async with manager.run():
        scope: Any = {**request.scope, "headers": [*request.scope["headers"]]}
        receive: Any = replayed(body, request.receive)
        await manager.handle_request(scope, receive, caught.send)
    kept = {name: value for name, value in caught.headers.items() if name.startswith("mcp-")}
    return Response(
        bytes(caught.body),
        status_code=caught.status,
        headers=kept,
        media_type=caught.headers.get("content-type", "application/json"),
    )


def _sdk() -> tuple[Any, Any]:
    from mcp.server.streamable_http_manager import (  # noqa: PLC0415 - an optional package
        StreamableHTTPSessionManager,
    )
    from mcp.server.transport_security import TransportSecuritySettings  # noqa: PLC0415

    return StreamableHTTPSessionManager, TransportSecuritySettings


def _ask(request: Request[Any, Any, Any]) -> protocol.Ask:
    async def ask(wanted: protocol.ApiRequest) -> bytes:
        caught = Caught()
        body = b"" if wanted.body is None else msgspec.json.encode(wanted.body)
        receive = replayed(body, request.receive)
        await request.app(_scope(request, wanted, body), receive, caught.send)
        if caught.status >= 400:
            raise error_of(bytes(caught.body), caught.status)
        return bytes(caught.body)

    return ask


def _scope(request: Request[Any, Any, Any], wanted: protocol.ApiRequest, body: bytes) -> Any:
    """Return the scope of a request to the API by the same caller."""
    path = f"/v1{wanted.path}"
    query = {name: value for name, value in wanted.query.items() if value is not None}
    headers = [one for one in request.scope["headers"] if not _own(one[0].lower())]
    headers += [(b"accept", b"application/json")]
    if wanted.method in CHANGES:
        headers += [(b"content-type", b"application/json")]
        headers += [(b"content-length", str(len(body)).encode())]
    root = request.scope.get("root_path", "")
    names = ("asgi", "http_version", "server", "client", "scheme", "extensions")
    return {
        **{name: request.scope[name] for name in names if name in request.scope},  # type: ignore[literal-required]
        "type": "http",
        "method": wanted.method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": root,
        "query_string": urlencode(query).encode(),
        "headers": headers,
        "state": {},
    }


def _own(name: bytes) -> bool:
    """Return whether a header is about the message, and not about the caller."""
    return name in OWN or name.startswith(tuple(each for each in OWN if each.endswith(b"-")))


HANDLERS: list[Any] = [mcp]
