"""Real clients of other protocols, run by Node.js: a program that reads operations and writes
results, one per line."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.node import node, node_modules

HERE = Path(__file__).parent
PATIENCE = 60.0  # seconds; only a hang takes so long
LINE = 32 << 20  # bytes of a result


class NodeClient:
    """A program that runs. `NodeClient.do` is one operation, `until` waits for a state."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, op: str, value: Any = None) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, "value": value}).encode() + b"\n")
        async with asyncio.timeout(PATIENCE):
            line = await self._process.stdout.readline()
        assert line, "the client ended"
        return json.loads(line)

    async def until(self, true: Callable[[Any], Any]) -> Any:
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self.do("state")
                if true(found):
                    return found
                await asyncio.sleep(0.02)


@asynccontextmanager
async def running(program: str, *words: str, folder: Path) -> AsyncGenerator[NodeClient, None]:
    """A program of this folder, next to the packages that it imports."""
    modules = await asyncio.to_thread(node_modules, HERE / "clients")
    shutil.copy(HERE / program, folder)
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(modules)
    process = await asyncio.create_subprocess_exec(
        *(str(node()), str(folder / program), *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE,
    )
    try:
        yield NodeClient(process)
    finally:
        process.kill()
        await process.wait()
