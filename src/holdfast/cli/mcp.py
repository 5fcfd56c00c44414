"""`holdfast mcp`: sessions for MCP clients, over stdio."""

from __future__ import annotations

import asyncio
import os
from importlib.metadata import version
from typing import Annotated

from cyclopts import Parameter

from ..errors import MissingExtra
from ..wire import mcp as protocol
from .options import DEFAULTS, Common

KEY = "HOLDFAST_KEY"  # the API key, which a command line would show to other users
URL = "http://127.0.0.1:7700"


def mcp(
    *,
    url: Annotated[str, Parameter(name="--url")] = URL,
    common: Common = DEFAULTS,
) -> None:
    """Serve the sessions of a server to an MCP client, over stdio.

    ```
    holdfast mcp --url https://agents.example.com
    ```

    Configure an MCP client to start this command. The client can then list, search and read
    sessions, send messages, and decide pending items, as far as the scopes of the API key in
    `HOLDFAST_KEY` allow. The key is not needed for a server on this machine that has no keys.

    :param url: Address of the server.
    """
    try:
        from mcp.server.stdio import stdio_server  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingExtra(extra="mcp", needed_for="holdfast mcp") from error
    # Imported here, because an unknown verb loads all verbs, also without this package.
    from ..client.transport import Patience, Transport  # noqa: PLC0415 - an optional package

    release = version("holdfast")

    async def serve() -> None:
        transport = Transport([url], os.environ.get(KEY) or None, patience=Patience())

        async def ask(request: protocol.ApiRequest) -> bytes:
            about = {"body": request.body, "query": request.query, "wait": request.wait}
            return await transport.raw(request.method, f"/v1{request.path}", **about)

        server = protocol.server(ask, release)
        try:
            async with stdio_server() as (received, sent):
                await server.run(received, sent, server.create_initialization_options())
        finally:
            await transport.aclose()

    asyncio.run(serve())
