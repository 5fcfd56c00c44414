"""Runs synchronous functions of tools, each in its own thread.

A function that never returns blocks only its own thread: other calls do not wait for it, and the
process can still exit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from ...environment import current
from ...errors import ToolError


async def run_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run the function in a thread with the context variables of the caller; return its result or
    raise its exception. If the caller is cancelled, the thread continues, because it cannot be
    stopped."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = copy_context()

    def tell(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(function, *arguments)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
            loop.call_soon_threadsafe(tell, value, error)

    current().start_thread(run, "holdfast-apart")
    value, error = await ended
    if error is None:
        return value
    try:
        raise escaped(error)
    finally:
        del error  # breaks the reference cycle of error and frame


def escaped(error: BaseException) -> BaseException:
    """Return an exception that is safe to raise in a task. Exceptions that Python uses to end a
    loop or the process, such as `StopIteration` and `SystemExit`, are converted to a
    `ToolError`."""
    if isinstance(error, asyncio.CancelledError | Exception) and not isinstance(
        error, StopIteration | StopAsyncIteration
    ):
        return error
    failure = ToolError(problem=f"the function raised {type(error).__name__}")
    failure.__cause__ = error
    return failure


def asked_to_stop() -> bool:
    """Return whether the current task was cancelled. If it was not, a `CancelledError` comes from
    an error in the code that raised it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
