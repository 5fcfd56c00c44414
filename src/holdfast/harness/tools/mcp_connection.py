"""Connections to MCP servers. `McpConnection` is one connection, owned by one task; `McpLink` opens
a new connection when the last one was lost. The client library is imported when a connection is
opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ...errors import HoldfastError

_REFUSED = (-32600, "Session terminated")  # the server ended the session before it read the call

Transport = Callable[[], AbstractAsyncContextManager[Any]]


@dataclass(eq=False, kw_only=True)
class ServerFailed(HoldfastError):
    """An MCP server was unavailable, closed the connection, or returned an error. A call that was
    in progress may or may not have taken effect."""

    code = "mcp_failed"

    server: str
    problem: str

    def __str__(self) -> str:
        return f"MCP server {self.server!r} {self.problem}"


class McpConnection:
    """A connection to an MCP server. It can be opened once, and ends when `close` is called or the
    server closes it."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self._name = name
        self._over = asyncio.Event()
        self._ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self._ready.done() and not self._over.is_set()

    @property
    def client(self) -> Any:
        return self._ready.result()

    async def open(self, within: float) -> None:
        """Connect within `within` seconds and negotiate the protocol. If this fails, the connection
        is closed."""
        self._task = asyncio.create_task(self._own(), name=f"mcp {self._name}")
        try:
            async with asyncio.timeout(within):
                await asyncio.shield(self._ready)
        except BaseException:
            self._task.cancel()
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection and wait until it has ended. If the caller is cancelled, closing
        continues in the background."""
        self._over.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _own(self) -> None:
        from mcp import Client  # noqa: PLC0415

        try:
            async with Client(self._watched(), cache=None) as client:
                self._ready.set_result(client)
                await self._over.wait()
        except Exception as error:
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            self._over.set()
            self._ready.cancel()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[tuple[Any, Any]]:
        async with self._transport() as (incoming, outgoing):
            yield Watched(incoming, self._over.set), outgoing


class McpLink:
    """Sends requests to one MCP server. Between `open` and `close`, the first request after a lost
    connection reconnects. Credentials never appear in the errors it raises."""

    def __init__(
        self, transport: Transport, name: str, secrets: Iterable[str], patience: float
    ) -> None:
        self._transport, self._name, self._patience = transport, name, patience
        self._secrets = sorted({s for s in secrets if len(s) > 3}, key=len, reverse=True)
        self._connection: McpConnection | None = None
        self._lock = asyncio.Lock()
        self._open = False

    @property
    def alive(self) -> bool:
        return self._connection is not None and self._connection.alive

    async def open(self) -> None:
        """Connect, unless already connected."""
        self._open = True
        try:
            await self._live()
        except BaseException:
            self._open = False
            raise

    async def close(self) -> None:
        """Close the connection."""
        self._open = False
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()

    async def ask(self, request: Callable[[Any], Awaitable[Any]], again: bool = True) -> Any:
        """Send a request and return the response. The request is sent again only if the server
        ended the session before it read the request."""
        from mcp import MCPError  # noqa: PLC0415

        connection = await self._live()
        try:
            return await request(connection.client)
        except MCPError as error:
            if again and (error.code, error.message) == _REFUSED:
                await connection.close()
                return await self.ask(request, again=False)
            raise self._failed(f"failed: {error.message}") from None
        except Exception as error:
            raise self._failed(f"failed: {type(error).__name__}: {error}") from None

    async def _live(self) -> McpConnection:
        """Return the open connection, or open a new one if the last connection has ended."""
        async with self._lock:
            if not self._open:
                raise ServerFailed(server=self._name, problem="is not connected")
            if self._connection is not None and self._connection.alive:
                return self._connection
            if self._connection is not None:
                await self._connection.close()
            connection = McpConnection(self._transport, self._name)
            try:
                await connection.open(self._patience)
            except TimeoutError:
                waited = f"did not answer within {self._patience:g} s"
                raise self._failed(waited) from None
            except Exception as error:
                raise self._failed(f"could not be reached: {_reason(error)}") from None
            self._connection = connection
            return connection

    def _failed(self, problem: str) -> ServerFailed:
        for secret in self._secrets:
            problem = problem.replace(secret, "***")
        return ServerFailed(server=self._name, problem=problem)


class Watched:
    """Wraps a stream of messages, and calls `ended` when the stream ends or fails."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._ended()
            raise

    async def __aenter__(self) -> Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.__aexit__(*error)


@asynccontextmanager
async def http_transport(url: str, headers: Mapping[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    """Open a streamable HTTP connection that sends `headers` with every request."""
    import httpx2  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    def made() -> Any:
        patience = httpx2.Timeout(30, read=None)  # each call has its own timeout
        return httpx2.AsyncClient(headers=dict(headers), timeout=patience)

    async with (
        await asyncio.to_thread(made) as client,  # it reads certificates
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


def _reason(error: BaseException) -> str:
    """Return the type and message of the first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
