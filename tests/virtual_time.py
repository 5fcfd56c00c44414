"""Tests in virtual time: leases and timers take no real time, and a machine that is
slow or stops for a while changes nothing. For what needs no I/O and no threads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import wraps
from typing import Any, ParamSpec

from holdfast import environment
from holdfast.testing.simulation.loop import EPOCH, Scheduler, new_loop

P = ParamSpec("P")


class VirtualClock(environment.Environment):
    """The environment of this process, with the clock of a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def time_ns(self) -> int:
        return int((EPOCH + self._scheduler.now) * 1e9)


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorator: run an async test on an event loop with virtual time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        scheduler = Scheduler()
        loop = new_loop(scheduler, "test")
        context = copy_context()
        context.run(environment._current.set, VirtualClock(scheduler))
        task = loop.create_task(test(*args, **kwargs), context=context)
        try:
            assert scheduler.run(task.done, limit=3600.0), f"{test.__name__} waits for nothing"
            task.result()
            assert loop.errors == []
        finally:
            loop.bury()

    return run
