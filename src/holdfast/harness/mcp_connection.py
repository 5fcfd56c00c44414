"""One connection to an MCP server, from its opening to its end, owned by one task. The client
library is imported when a connection is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any

Transport = Callable[[], AbstractAsyncContextManager[Any]]


class Connection:
    """Opened once, over once: by `close`, or when the server ends it."""

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
        """Connect and agree on a protocol; what fails leaves nothing behind."""
        self._task = asyncio.create_task(self._own(), name=f"mcp {self._name}")
        try:
            async with asyncio.timeout(within):
                await asyncio.shield(self._ready)
        except BaseException:
            self._task.cancel()
            await self.close()
            raise

    async def close(self) -> None:
        """End it, and wait until everything of it has ended; that goes on if the caller is
        cancelled."""
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


class Watched:
    """A stream of messages that tells when it has ended."""

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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._stream.__aexit__(kind, error, tb)


@asynccontextmanager
async def http_transport(url: str, headers: Mapping[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    """Streamable HTTP with headers of our own."""
    import httpx2  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    def made() -> Any:
        patience = httpx2.Timeout(30, read=None)  # a call has a timeout of its own
        return httpx2.AsyncClient(headers=dict(headers), timeout=patience)

    async with (
        await asyncio.to_thread(made) as client,  # it reads certificates
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams
