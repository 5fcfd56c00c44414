"""Event loops with virtual time: one loop per simulated process, and the scheduler that runs them.

A process runs its ready callbacks in FIFO order, as asyncio does, until none is left. The scheduler
then runs the next planned callback, ordered by time. There is no real time, no I/O and no thread,
so the order of execution depends only on the seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import sys
import weakref
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context
from typing import Any

Callback = Callable[..., Any]

EPOCH = 1_700_000_000.0  # the start time of a simulation, in seconds since 1970
MOST_CALLBACKS = 50_000  # callbacks that a process may run without waiting


class Runaway(AssertionError):
    """Raised if a process runs too many callbacks without ever waiting."""


class TimerQueue:
    """A queue of callbacks, ordered by time and then by insertion."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Any]] = []
        self._count = 0

    def push(self, when: float, item: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, item))

    @property
    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def pop(self) -> Any:
        return heapq.heappop(self._heap)[2]


class Scheduler:
    """Keeps the virtual time, and runs the planned callbacks in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0  # seconds
        self._planned = TimerQueue()

    def at(self, when: float, callback: Callable[[], Any]) -> None:
        """Plan a callback that runs at the time `when`, outside of any process."""
        self._planned.push(max(when, self.now), callback)

    def after(self, seconds: float, callback: Callable[[], Any]) -> None:
        self._planned.push(self.now + seconds, callback)

    def run(self, until: Callable[[], bool], limit: float) -> bool:
        """Run planned callbacks until `until()` returns True. Return False if no callback is left,
        or if the next callback is later than `limit`."""
        planned = self._planned
        while not until():
            when = planned.next
            if when is None or when > limit:
                return False
            self.now = max(self.now, when)
            planned.pop()()
        return True


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process. It runs no callbacks while it is `paused` or after
    it was killed."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler, self.name = scheduler, name
        self._ready: deque[events.Handle] = deque()
        self._woken = False  # a run of this loop is planned
        self._generators: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.dead = False
        self.paused = False
        self.steps = 0
        self.errors: list[dict[str, Any]] = []  # contexts passed to the exception handler
        self.trace: Callable[[str], None] | None = None

    # Scheduling

    def time(self) -> float:
        return self._scheduler.now

    def call_soon(  # type: ignore[override]  # the callbacks are not checked
        self, callback: Callback, *args: Any, context: Context | None = None
    ) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        if not self.dead:
            self._ready.append(handle)
            self.wake()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callback, *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callback, *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        timer = events.TimerHandle(when, callback, args, self, context)
        self._scheduler.at(when, lambda: self._due(timer))
        return timer

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        pass  # a cancelled timer is skipped when it is due

    def _due(self, timer: events.TimerHandle) -> None:
        if not (timer.cancelled() or self.dead):
            self._ready.append(timer)
            self.wake()

    def wake(self) -> None:
        """Plan a run of the ready callbacks, unless one is already planned."""
        if not self._woken:
            self._woken = True
            self._scheduler.at(self._scheduler.now, self._run)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.wake()

    def kill(self) -> None:
        """Stop the process immediately: none of its callbacks runs any more."""
        self.dead = True

    def bury(self) -> None:
        """Kill the process and close its unfinished tasks, so that Python does not warn about
        them."""
        self.kill()
        for task in [*self.tasks]:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):  # the cleanup of a task may raise anything
                task.get_coro().close()
        self._ready.clear()

    def _run(self) -> None:
        """Run the ready callbacks, including callbacks that become ready meanwhile."""
        self._woken = False
        if self.dead or self.paused or not self._ready:
            return
        ready, count = self._ready, 0
        before = events._get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generators.add, finalizer=self._finalize)
        events._set_running_loop(self)
        try:
            while ready and not self.dead and not self.paused:
                handle = ready.popleft()
                if not handle._cancelled:
                    count += 1
                    if self.trace is not None:
                        self.trace(f"{self.name} {self._scheduler.now:.6f} {handle_name(handle)}")
                    handle._run()
                    if count > MOST_CALLBACKS:
                        raise Runaway(f"{self.name} ran {count} callbacks without waiting")
        finally:
            events._set_running_loop(before)
            sys.set_asyncgen_hooks(*hooks)
            self.steps += count

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators.discard(generator)
        if not self.dead:
            self.create_task(generator.aclose())

    # Futures, tasks and threads

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, **options)
        self.tasks.add(task)
        return task

    def run_in_executor(  # type: ignore[override]  # there are no threads: it is done when it returns
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    # The rest of the interface

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.errors.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_exception_handler(self) -> None:
        return None


def new_loop(scheduler: Scheduler, name: str) -> ProcessLoop:
    """Return a loop for one process. It implements only the methods that need no I/O."""
    return ProcessLoop(scheduler, name)  # type: ignore[abstract]


def handle_name(handle: events.Handle) -> str:
    """Return the name of the function that a handle calls, without memory addresses."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return coroutine_name(owner)
    return getattr(callback, "__qualname__", type(callback).__name__)


def coroutine_name(task: asyncio.Task[Any]) -> str:
    """Return the name of the coroutine that a task runs."""
    coro = task.get_coro()
    return getattr(coro, "__qualname__", type(coro).__name__)
