"""MCP servers as sources of tools (extra `mcp`).

Each connection has one task that opens and closes it, because the client library can close a
connection only in the task that opened it. After a lost connection, the next use reconnects. A call
that was in progress when the connection was lost fails and is not sent again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ...errors import InvalidValue, MissingExtra
from .definition import Approve, Tool, ToolContext
from .mcp_connection import McpLink, ServerFailed, http_transport
from .mcp_values import result_of, risk_of, tool_name
from .values import ToolResult

__all__ = ["MCPServer", "ServerFailed"]

_PAGES = 1_000


class MCPServer:
    """An MCP server whose tools an agent can use. Use it with `async with`, or call `connect` and
    `close`.

    `approval` applies to all its tools. `overrides` changes the declarations of single tools, by
    their names on the server; None omits a tool. `timeout` is for one call, in seconds. Credentials
    never appear in its repr or in the errors it raises.
    """

    def __init__(
        self,
        transport: Callable[[], AbstractAsyncContextManager[Any]],
        *,
        name: str,
        secrets: Iterable[str] = (),
        prefix: str = "",
        category: str | None = "mcp",
        approval: Approve = "ask",
        overrides: Mapping[str, Mapping[str, Any] | None] | None = None,
        timeout: float | None = None,
        connect_timeout: float = 30,
    ) -> None:
        self.name = name
        self._line = McpLink(transport, name, secrets, connect_timeout)
        self._prefix = prefix
        self._category = category
        self._approval = approval
        self._overrides = dict(overrides or {})
        self._timeout = timeout

    @classmethod
    def stdio(
        cls,
        command: str,
        args: Iterable[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        name: str | None = None,
        **options: Any,
    ) -> MCPServer:
        """Create a server that runs as a child process and communicates over stdin and stdout. Its
        environment consists of `env` and the few variables that most programs need (`PATH`, `HOME`,
        …)."""
        args, env = list(args), dict(env or {})

        def transport() -> AbstractAsyncContextManager[Any]:
            from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415

            program = StdioServerParameters(command=command, args=args, env=env, cwd=cwd)
            return stdio_client(program, errlog=sys.stderr)

        secrets = [*env.values(), *args]
        return cls(transport, name=name or Path(command).name, secrets=secrets, **options)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> MCPServer:
        """Create a server at a URL, connected by streamable HTTP. `headers` are sent with every
        request."""
        headers = dict(headers or {})

        def transport() -> AbstractAsyncContextManager[Any]:
            return http_transport(url, headers)

        parts = urlsplit(url)
        secrets = [
            parts.password or "",
            parts.query,
            *(value for _, value in parse_qsl(parts.query)),
        ]
        for value in headers.values():
            secrets += [value, *value.split()]
        return cls(transport, name=name or parts.hostname or "http", secrets=secrets, **options)

    def __repr__(self) -> str:
        return f"MCPServer({self.name!r}, connected={self.connected})"

    async def __aenter__(self) -> MCPServer:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def connected(self) -> bool:
        return self._line.alive

    async def connect(self) -> None:
        """Connect to the server, unless already connected. If the connection is lost before
        `close`, the next request reconnects."""
        await _import()
        await self._line.open()

    async def close(self) -> None:
        """Close the connection and end the child process, if there is one."""
        await self._line.close()

    async def tools(self) -> list[Tool]:
        """Return the current tools of the server. Raises `InvalidValue` if two tools get the same
        name, a schema is invalid, or an override is for an unknown tool."""
        found = await self._listed()
        missing = sorted(set(self._overrides) - {one.name for one in found})
        if missing:
            raise InvalidValue(
                field="overrides",
                problem=f"contains tools that MCP server {self.name!r} does not have "
                f"({', '.join(missing)})",
                remedy=f"use names of its tools ({', '.join(one.name for one in found)})",
            )
        wanted = [one for one in found if self._overrides.get(one.name, {}) is not None]
        tools = [self._tool(one) for one in wanted]
        names = [tool.name for tool in tools]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidValue(
                field="tools",
                problem=f"have duplicate names on MCP server {self.name!r} ({', '.join(twice)})",
                remedy="rename them with overrides",
            )
        return tools

    def _tool(self, one: Any) -> Tool:
        risk, repeat_safe = risk_of(one.annotations)

        options: dict[str, Any] = {
            "category": self._category,
            "approval": self._approval,
            "timeout": self._timeout,
            "risk": risk,
            "repeat_safe": repeat_safe,
            **(self._overrides.get(one.name) or {}),
        }

        async def call(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            answer = await self._call(one.name, arguments, context, options["timeout"])
            return result_of(answer)

        name = options.pop("name", tool_name(self._prefix + one.name))
        description = options.pop("description", one.description or one.title or "")
        return Tool.from_schema(name, description, one.input_schema, call, **options)

    async def _listed(self) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await self._line.ask(methodcaller("list_tools", cursor=cursor))
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                return found
        raise ServerFailed(server=self.name, problem=f"returned more than {_PAGES} pages of tools")

    async def _call(
        self, name: str, arguments: dict[str, Any], context: ToolContext, within: float | None
    ) -> Any:
        async def progress(done: float, total: float | None, message: str | None) -> None:
            await context.progress({"progress": done, "total": total, "message": message})

        return await self._line.ask(
            methodcaller(
                "call_tool",
                name,
                arguments,
                read_timeout_seconds=within,
                progress_callback=progress,
                meta={"holdfast/key": context.key},
            )
        )


async def _import() -> None:
    """Import the client library in a thread, because the import is slow and reads files."""

    def load() -> None:
        from mcp import Client  # noqa: F401, PLC0415

        import_module("jsonschema")
        import_module("mcp.client.streamable_http")

    try:
        await asyncio.to_thread(load)
    except ImportError as error:
        raise MissingExtra(extra="mcp", needed_for="an MCP server") from error
