"""The recipe of a worker, as printed: two processes and two tenants on PostgreSQL, one of them
killed."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast import Store, connect
from holdfast.log.events import Key
from tests.servers import recycled

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 60.0


async def test_two_workers_answer_two_tenants_and_one_is_killed(tmp_path: Path) -> None:
    async with recycled.empty("postgres") as url, connect(url) as store:
        for name in ("worker.py", "producer.py"):
            shutil.copy(EXAMPLES / name, tmp_path)
        async with (
            _started("worker.py", url, tmp_path) as one,
            _started("worker.py", url, tmp_path) as two,
        ):
            said = await _produced(url, "acme", "order-42", tmp_path)
            assert said == "message 2 of session 'order-42' is stored\n"
            assert await _produced(url, "acme", "order-42", tmp_path) == said
            await _answered(store, "acme", "order-42")
            one.kill()
            await one.wait()
            await _produced(url, "globex", "order-7", tmp_path)
            await _answered(store, "globex", "order-7")
            two.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                assert await two.wait() == 0


@asynccontextmanager
async def _started(
    name: str, url: str, folder: Path
) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    process = await asyncio.create_subprocess_exec(sys.executable, name, url, cwd=folder)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _produced(url: str, tenant: str, session: str, folder: Path) -> str:
    words = ["producer.py", url, tenant, session, "hello"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    return said.decode()


async def _answered(store: Store, tenant: str, session: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async for event in store.follow(Key(tenant, session, "main")):
            if getattr(event, "kind", None) == "run.finished":
                return
