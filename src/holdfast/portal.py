"""Portals: calls to an asyncio event loop from other event loops, from threads and from trio.

A `Portal` belongs to one event loop. `LoopThread` is a portal to an event loop in its own daemon
thread. `process_portal` returns the portal that the whole process shares.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from .cancellation import ended, forget
from .errors import InvalidValue, StoreError, StoreUnavailable

T = TypeVar("T")
Function = Callable[..., Coroutine[Any, Any, T]]
Wake = Callable[[], object]

running_loop = asyncio._get_running_loop  # like get_running_loop, but None outside a loop


class Portal:
    """Calls functions on one event loop, by default the running one, from anywhere in the process.

    Each call runs as a task of that loop, in a copy of the caller's context variables. The caller
    gets the call's result, or the same exception object. A call from the loop itself runs directly,
    without a task. Calls raise `StoreError` if the loop is not running, or if it belongs to the
    process from which this one was forked, and `StoreUnavailable` if the loop ends before the call
    does.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self._process = _process
        self._calls: set[_Call[Any]] = set()  # asyncio keeps only weak references to tasks

    def here(self) -> bool:
        """Return whether the caller runs on the loop of this portal."""
        return running_loop() is self.loop

    async def run(self, function: Function[T], /, *arguments: Any, **named: Any) -> T:
        """Call an async function on the loop and return its result. When the caller is cancelled,
        the call is cancelled too. Can be awaited on any asyncio loop and under trio."""
        return await self._run(True, function, arguments, named)

    async def run_to_end(self, function: Function[T], /, *arguments: Any, **named: Any) -> T:
        """Like `run`, but the call runs to completion, even if the caller is cancelled
        meanwhile."""
        return await self._run(False, function, arguments, named)

    def wait(self, function: Function[T], /, *arguments: Any, **named: Any) -> T:
        """Call an async function on the loop from another thread, block until the call has ended,
        and return its result. An interrupt (Ctrl-C) ends the wait, but the call continues."""
        if self.is_own_thread():
            raise InvalidValue(
                field="wait",
                problem="was called on the event loop that it waits for, which would deadlock",
                remedy="use await there, or call it from another thread",
            )
        done = threading.Event()
        call = self._hand_over(done.set, function, arguments, named)
        done.wait()
        return call.result()

    async def _run(
        self, cancels: bool, function: Function[T], arguments: tuple[Any, ...], named: Any
    ) -> T:
        if self.here():
            return await function(*arguments, **named)
        wake, wait = _signal()
        call = self._hand_over(wake, function, arguments, named)
        try:
            await wait()
        except BaseException:  # cancelled
            if cancels:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self.loop.call_soon_threadsafe(call.cancel)
            raise
        return call.result()

    def _hand_over(
        self, wake: Wake, function: Function[T], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> _Call[T]:
        if self._process is not _process:
            raise StoreError(
                problem="the store was opened before this process was forked: open it again"
            )
        if not self.start():
            raise StoreError(problem="the event loop on which the store was opened is not running")
        call = _Call(self._calls, wake, partial(function, *arguments, **named))
        try:
            self.loop.call_soon_threadsafe(call.start, context=copy_context())
        except RuntimeError:
            raise StoreError(
                problem="the event loop on which the store was opened has ended"
            ) from None
        return call

    def start(self) -> bool:
        """Start the loop if this portal owns it. Returns whether the loop accepts calls."""
        return self.loop.is_running()

    def is_own_thread(self) -> bool:
        """Return whether the caller is in the thread of the loop."""
        return self.here()


class LoopThread(Portal):
    """A portal to a new event loop in a daemon thread. The thread starts with the first call."""

    def __init__(self, name: str) -> None:
        super().__init__(asyncio.new_event_loop())
        self._thread = threading.Thread(target=_run_loop, args=(self.loop,), name=name, daemon=True)
        self._starting = threading.Lock()

    def stop(self) -> None:
        """Stop the loop: cancel the tasks that are still running, and join the thread."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        else:
            self.loop.close()

    def start(self) -> bool:
        if self._thread.ident is None:
            with self._starting:
                if self._thread.ident is None and not self.loop.is_closed():
                    self._thread.start()
        return not self.loop.is_closed()

    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread


class _Call(Generic[T]):
    """A call that is passed to a loop from outside. All methods except `result` run on that
    loop."""

    __slots__ = ("_calls", "_task", "_wake", "_work")

    def __init__(self, calls: set[_Call[Any]], wake: Wake, work: Function[T]) -> None:
        self._calls, self._wake, self._work = calls, wake, work
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self._calls.add(self)
        self._task = asyncio.create_task(self._work())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._calls.discard(self)
        forget(task)
        with contextlib.suppress(RuntimeError):  # the caller's loop has ended
            self._wake()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def result(self) -> T:
        """Return the call's result, or raise its exception. The call must have ended."""
        assert self._task is not None
        if self._task.cancelled():
            raise StoreUnavailable(problem="the event loop ended before the call did")
        return self._task.result()


def _signal() -> tuple[Wake, Callable[[], Awaitable[object]]]:
    """Return two functions: the first wakes the caller, from any thread; the caller awaits the
    result of the second until then."""
    loop = running_loop()
    if loop is not None:
        future: asyncio.Future[None] = loop.create_future()
        return partial(loop.call_soon_threadsafe, _release, future), lambda: future
    if not in_trio():
        raise InvalidValue(
            field="await",
            problem="needs asyncio or trio, and neither is running",
            remedy="use holdfast.sync in code without an event loop",
        )
    trio = sys.modules["trio"]
    event = trio.Event()
    token = trio.lowlevel.current_trio_token()
    return partial(token.run_sync_soon, event.set), event.wait


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def in_trio() -> bool:
    """Return whether trio runs in this thread, on its own or under anyio."""
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(ended(*asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


# The loop of the process


class _Process:
    """State that belongs to one process; a forked process gets its own. `parent` keeps a reference
    to the state inherited from the parent process, because freeing it would close resources that
    the parent process uses."""

    def __init__(self, parent: _Process | None = None) -> None:
        self.parent = parent
        self.lock = threading.Lock()
        self.portal: LoopThread | None = None


_process = _Process()


def _forked() -> None:
    global _process  # noqa: PLW0603 - one per process
    _process = _Process(_process)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def process_portal() -> Portal:
    """Return the portal to the event loop that all code in this process shares. The loop runs in a
    daemon thread until the process ends."""
    process = _process
    if process.portal is None:
        with process.lock:
            if process.portal is None:
                process.portal = LoopThread("holdfast.portal")
    return process.portal
