"""The servers that are measured, each in a process of its own: Holdfast with a model that costs
nothing, and a bare Litestar route that appends to the same store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from litestar import Litestar, post
from litestar.datastructures import State

import holdfast
from holdfast.events import NewEvent
from holdfast.server import NoAuth, ServerLimits, create_app
from holdfast.server.processes import collect_rarely

from .harness import Instant, shop
from .streams import Clock

READY = 30.0  # seconds until a server that does not come up has failed
ROOT = Path(__file__).parent.parent
UNLIMITED = ServerLimits(rate=None, concurrent=10_000, streams=10_000, requests=20_000)


def ours(store: str, chunks: int, spacing: float) -> Litestar:
    """Holdfast, with a model that speaks in so many chunks, or answers at once."""
    model: Any = Clock(chunks, spacing) if chunks else Instant()
    return create_app(
        agents=[shop()],
        stores=store,
        auth=NoAuth(),
        limits=UNLIMITED,
        docs=False,
        harness={"default_model": model},
    )


def bare(url: str) -> Litestar:
    """A route that appends what it is sent, and does nothing else."""

    @contextlib.asynccontextmanager
    async def opened(app: Litestar) -> AsyncGenerator[None, None]:
        async with holdfast.connect(url) as store:
            app.state["store"] = store
            yield

    @post("/append/{session:str}", status_code=202)
    async def append(session: str, data: dict[str, Any], state: State) -> dict[str, Any]:
        event = NewEvent.of("message.received", data)
        done = await state["store"].append(holdfast.key(session), [event], create=True)
        return {"session": session, "seq": done.seqs[0]}

    return Litestar([append], lifespan=[opened], openapi_config=None, logging_config=None)


def main() -> None:
    """`python -m bench.served what store port chunks spacing`."""
    what, store, port, chunks, spacing = sys.argv[1:]
    app = bare(store) if what == "bare" else ours(store, int(chunks), float(spacing))
    config = uvicorn.Config(
        app, port=int(port), log_level="error", access_log=False, ws="none", timeout_keep_alive=120
    )
    collect_rarely()  # as `holdfast serve` does
    uvicorn.Server(config).run()


@contextlib.contextmanager
def served(
    what: str, store: str, *, chunks: int = 0, spacing: float = 0.0
) -> Iterator[tuple[int, int]]:
    """Such a server; its port and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = [what, store, str(port), str(chunks), str(spacing)]
    process = subprocess.Popen([sys.executable, "-m", "bench.served", *told], cwd=ROOT)
    try:
        _wait(port, process)
        yield port, process.pid
    finally:
        process.terminate()
        try:
            process.wait(READY)
        finally:
            process.kill()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + READY
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.05)
    raise RuntimeError("a server did not come up")


def resident(pid: int) -> float:
    """The memory of a process, in MB."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Line:
    """A connection that is kept, with as little of HTTP as these servers need."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> int:
        """Send a request, and read its answer; the status."""
        await self.send(method, path, body, **headers)
        status, length = await self.head()
        if length:
            await self.reader.readexactly(length)
        return status

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        named = {"host": "127.0.0.1", "content-length": str(len(body)), **headers}
        if body:
            named["content-type"] = "application/json"
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in named.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self.writer.drain()

    async def head(self) -> tuple[int, int]:
        """The status of an answer, and the length of its body if it has one."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        _, _, length = text.partition("content-length: ")
        return int(text.split()[1]), int(length.partition("\r\n")[0]) if length else 0

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


if __name__ == "__main__":
    main()
