"""`holdfast serve` in a process of its own, that serves `desk.py` with API keys. It may be killed
and started again."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

import holdfast
from holdfast.client import Client
from holdfast.server import ApiKeys
from tests.servers.process import Program, free_port

EVERYTHING = (
    *("sessions:read", "sessions:write", "sessions:all", "pending:decide", "bundles"),
    *("files:read", "files:write", "people:erase"),
)
CONFIG = """
[agents]
desk = "desk:desk"
[stores]
sqlite = "sqlite:{folder}/sessions.db"
[auth]
kind = "keys"
[audit]
sink = "file"
path = "{folder}/audit.jsonl"
[limits]
rate = 1000.0
burst = 2000
"""


class Server:
    """A server, at the same address unless it is moved, and its keys."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        self.folder = folder
        self.move(free_port())
        self.store = f"sqlite:{folder}/sessions.db"
        shutil.copy(Path(__file__).with_name("desk.py"), folder)
        (folder / "server.toml").write_text(config.format(folder=folder))
        self._program = Program(folder / "words", dying=signal.SIGKILL)

    def move(self, port: int) -> None:
        """Use another port from the next start on."""
        self.port, self.url = port, f"http://127.0.0.1:{port}"

    async def start(self) -> None:
        words = (*(sys.executable, "-m", "holdfast.cli", "serve"), *("--config", "server.toml"))
        await asyncio.to_thread(
            self._program.start, [*words, "--port", str(self.port)], self._ready
        )

    async def kill(self) -> None:
        """End it with SIGKILL."""
        await asyncio.to_thread(self._program.end, signal.SIGKILL)

    async def stop(self) -> None:
        await asyncio.to_thread(self._program.end, signal.SIGTERM)

    async def key(
        self, principal: str, tenant: str = "main", scopes: Iterable[str] = EVERYTHING
    ) -> str:
        """Create an API key."""
        async with holdfast.connect(self.store) as store:
            made = await ApiKeys(store).create(principal=principal, tenant=tenant, scopes=scopes)
        return made.key

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/v1/ready", timeout=5).is_success
        except httpx.HTTPError:
            return False


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[Server, None]:
    """A server that runs."""
    server = Server(folder)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


class Office:
    """A tenant of a server, with nothing in it yet: keys and clients of its people."""

    def __init__(self, server: Server, tenant: str) -> None:
        self.server, self.tenant = server, tenant
        self._clients: dict[str, Client] = {}

    async def key(self, principal: str = "ann", scopes: Iterable[str] = EVERYTHING) -> str:
        return await self.server.key(principal, self.tenant, scopes)

    async def client(self, principal: str = "ann") -> Client:
        """The client of a person, who may do everything."""
        if principal not in self._clients:
            self._clients[principal] = Client(self.server.url, await self.key(principal))
        return self._clients[principal]

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()
