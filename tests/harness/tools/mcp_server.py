"""A small MCP server for the tests, run as a program: over its pipes, or with `http` over
streamable HTTP at a port that it prints. What it does it writes to the file `JOURNAL`."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import EmbeddedResource, ResourceLink, TextContent, TextResourceContents
from mcp.types import ToolAnnotations as Hints
from pydantic import BaseModel, Field

PIXEL = b"\x89PNG\r\n\x1a\n"
server = MCPServer("small", log_level="ERROR")


def journal(line: str) -> None:
    with Path(os.environ["JOURNAL"]).open("a") as file:
        file.write(f"{line}\n")


class Sum(BaseModel):
    total: int


@server.tool(annotations=Hints(read_only_hint=True))
def add(a: int, b: int = Field(1, ge=0)) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool(annotations=Hints(destructive_hint=False, idempotent_hint=True))
def note(text: str) -> str:
    """Write something down."""
    journal(text)
    return f"noted {text}"


@server.tool(annotations=Hints(destructive_hint=True))
def refuse() -> str:
    """Always refuse."""
    raise ToolError("there is no such order")


@server.tool(name="files.read", structured_output=False)
def files() -> list[Any]:
    """Point at some files."""
    return [
        TextContent(text="two files"),
        ResourceLink(name="one", uri="file:///data/one.txt"),
        EmbeddedResource(resource=TextResourceContents(uri="https://example.com/b", text="bee")),
    ]


@server.tool(structured_output=False)
def picture() -> list[Any]:
    """Draw a picture."""
    return ["here it is", Image(data=PIXEL, format="png")]


@server.tool()
def pid() -> int:
    """Tell the process."""
    return os.getpid()


@server.tool()
def die() -> str:
    """Begin something, and die of it."""
    journal("die")
    os._exit(3)


@server.tool()
async def hang() -> str:
    """Begin something that never ends."""
    journal("hang")
    await anyio.sleep_forever()
    return ""


@server.tool()
async def walk(ctx: Context[Any, Any]) -> str:
    """Go in steps."""
    await ctx.report_progress(1, 2, "half way")
    return "there"


@server.tool()
def key(ctx: Context[Any, Any]) -> str:
    """Tell the key of this call."""
    meta = ctx.request_context.meta or {}
    return str(dict(meta).get("holdfast/key"))


App = Callable[[Any, Any, Any], Awaitable[None]]


def guarded(app: App) -> App:
    """Only who has the token may come in."""

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", []))
        if scope["type"] == "http" and headers.get(b"authorization") != b"Bearer tok-12345":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
        else:
            await app(scope, receive, send)

    return guard


def serve_http() -> None:
    with socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "0")))) as listener:
        print(listener.getsockname()[1], flush=True)
        app = guarded(server.streamable_http_app())
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if "http" in sys.argv:
        serve_http()
    else:
        server.run()
