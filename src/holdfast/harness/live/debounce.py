"""Debouncing: runs a function after a delay, and merges the requests that arrive in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...cancellation import ended


class Debounced:
    """Runs `work` once, `delay` seconds after the first request; further requests before that have
    no effect. Only one call runs at a time, and no task is created before the work is due."""

    def __init__(self, delay: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._delay, self._work = delay, work
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def ask(self) -> None:
        if self._timer is None and not self._over:
            self._timer = asyncio.get_running_loop().call_later(self._delay, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        else:
            self.ask()

    async def end(self, *, cut: bool = False) -> None:
        """Accept no more requests. Wait for the call of `work` in progress, or with `cut` cancel
        it."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._task.done():
            if cut:
                await ended(self._task)
            else:
                await asyncio.wait({self._task})
