"""What a process wrote before it was killed is there, whole, for the next one."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from holdfast import connect
from holdfast.adapters.openai import HoldfastSession

from .openai_writer import EXPECTED

ROOT = Path(__file__).parents[2]


async def test_process_killed_after_any_call_has_lost_nothing(tmp_path: Path) -> None:
    urls = [f"sqlite:{tmp_path}/{stop}.db" for stop in range(len(EXPECTED))]
    codes = await asyncio.gather(
        *(asyncio.to_thread(killed, url, stop + 1) for stop, url in enumerate(urls))
    )
    assert codes == [-signal.SIGKILL] * len(urls)
    for url, expected in zip(urls, EXPECTED, strict=True):
        async with connect(url) as store:
            session = HoldfastSession("s", store)
            assert await session.get_items() == expected
            await session.add_items(EXPECTED[0])
            assert await session.get_items() == expected + EXPECTED[0]
            assert [damage async for damage in store.verify()] == []


def killed(url: str, stop: int) -> int:
    command = [sys.executable, "-m", "tests.adapters.openai_writer", url, str(stop)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def test_example_continues_its_conversation(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples/openai_agent.py"), f"sqlite:{tmp_path}/log.db"]
    for items in (4, 8):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout == f"It was shipped.\n{items} items in the conversation\n"
