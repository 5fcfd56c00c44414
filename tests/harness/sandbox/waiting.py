"""Waits for a state, and tells whether a process is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


async def until(holds: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110  # processes tell nobody
            await asyncio.sleep(0.01)


async def given_time(run: Callable[[float], Awaitable[T]], good: Callable[[T], object]) -> T:
    """What came of a call with a timeout that was long enough for the call to get going: how
    long that takes depends on the machine."""
    for seconds in (0.5, 2, 8, 30):
        result = await run(seconds)
        if await asyncio.to_thread(good, result):
            break
    return result


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def numbers(path: Path) -> list[int]:
    """The whole lines of a file, each a number."""
    if not path.exists():
        return []
    return [int(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
