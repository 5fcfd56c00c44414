"""Work that lasts, and what ends it before it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
GRACE = 1.0  # seconds that work gets to end after it was told to stop


class Stoppable:
    """One that works, and can be told to stop: at the next safe point (`stopping`), at once
    (`halt`), or because it may not go on (`lost`)."""

    def __init__(self) -> None:
        self.stopping = False  # at the next safe point
        self.failure: BaseException | None = None
        self.aborted = asyncio.Event()  # as tools see it
        self._halted = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Stop at the next safe point."""
        self.stopping = True

    def halt(self) -> None:
        """Stop what is being done now."""
        if not self._halted.done():
            self._halted.set_result(None)

    def lost(self, error: BaseException) -> None:
        """Stop, and do nothing more."""
        self.failure = error
        self.halt()

    def go_on(self) -> None:
        """Forget an earlier halt, unless it holds for good."""
        if not self.stopping and self.failure is None:
            if self._halted.done():
                self._halted = asyncio.get_running_loop().create_future()
            if self.aborted.is_set():
                self.aborted = asyncio.Event()

    async def within(self, seconds: float | None, work: Coroutine[Any, Any, T]) -> T | None:
        """What `work` returns, or None if it was halted or took longer. Raises what was lost."""
        task = asyncio.create_task(work)
        try:
            either = {task, self._halted}
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if stopped := not task.done():
                await self._stop(task)
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        if self.failure is not None:
            if task.done() and not task.cancelled():
                task.exception()  # seen; what ended everything is told instead
            raise self.failure
        if task.cancelled() and not stopped:
            raise RuntimeError("the work was cancelled, and nobody here asked for that")
        return task.result() if task.done() and not task.cancelled() else None

    async def _stop(self, task: asyncio.Task[Any]) -> None:
        self.aborted.set()
        task.cancel()
        await asyncio.wait({task}, timeout=4 * GRACE)
        if not task.done():  # it does not listen: what becomes of it is nobody's business
            task.add_done_callback(forget)


def forget(task: asyncio.Task[Any]) -> None:
    """Whatever a task ends with, nobody waits for it any more."""
    if not task.cancelled():
        task.exception()
