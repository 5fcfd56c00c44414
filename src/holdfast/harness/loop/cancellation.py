"""Cancellation of running work, such as model calls and tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ...cancellation import forget

T = TypeVar("T")
GRACE = 1.0  # seconds that work gets to end after it was cancelled


class Stoppable:
    """Work that can be stopped: at the next safe point (`stop`), immediately (`halt`), or
    permanently because of an error such as a lost lease (`lost`)."""

    def __init__(self) -> None:
        self.stopping = False  # at the next safe point
        self.failure: BaseException | None = None
        self.aborted = asyncio.Event()  # as tools see it
        self._halted = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Stop at the next safe point."""
        self.stopping = True

    def halt(self) -> None:
        """Cancel the current work."""
        if not self._halted.done():
            self._halted.set_result(None)

    def lost(self, error: BaseException) -> None:
        """Cancel the current work, and start no more. `error` is raised to the caller of
        `within`."""
        self.failure = error
        self.halt()

    def reset(self) -> None:
        """Clear an earlier halt, unless the work was stopped permanently."""
        if not self.stopping and self.failure is None:
            if self._halted.done():
                self._halted = asyncio.get_running_loop().create_future()
            if self.aborted.is_set():
                self.aborted = asyncio.Event()

    async def within(
        self, left: Callable[[], float] | None, work: Coroutine[Any, Any, T]
    ) -> T | None:
        """Return the result of `work`, or None if it was halted or its time ran out. `left` returns
        the remaining seconds. Raises the error passed to `lost`."""
        task, halted = asyncio.create_task(work), self._halted
        try:
            going = True  # the work starts in any case, so that it can record that it was stopped
            while going:
                seconds = None if left is None else max(0.0, left())
                await asyncio.wait(
                    {task, halted}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                over = left is not None and left() <= 0
                going = not (over or task.done() or halted.done())
            if stopped := not task.done():
                await self._stop(task)
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        if self.failure is not None:
            if task.done() and not task.cancelled():
                task.exception()  # mark it as retrieved; the other error is raised
            raise self.failure
        if task.cancelled() and not stopped:
            raise RuntimeError("the work was cancelled without a request to stop")
        return task.result() if task.done() and not task.cancelled() else None

    async def _stop(self, task: asyncio.Task[Any]) -> None:
        self.aborted.set()
        task.cancel()
        await asyncio.wait({task}, timeout=4 * GRACE)
        if not task.done():  # the task ignores cancellation: discard its result
            task.add_done_callback(forget)
