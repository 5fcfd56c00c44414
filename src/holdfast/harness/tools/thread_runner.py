"""Plain functions of a program, called in threads of their own.

A function that never returns keeps its one thread and nothing else: no other call waits for it,
and the process can end without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from ...errors import ToolError


async def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns or raises, with the context variables of the caller. Whoever is
    cancelled meanwhile leaves it to itself: a thread cannot be stopped."""
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(tell, value, error)

    threading.Thread(target=run, name="holdfast-apart", daemon=True).start()
    value, error = await ended
    if error is None:
        return value
    try:
        raise escaped(error)
    finally:
        del error  # or it would keep this frame, which keeps it


def escaped(error: BaseException) -> BaseException:
    """The error as it may be raised where tasks run: one that Python itself uses, to end a loop
    or the process, says so in words instead."""
    if isinstance(error, asyncio.CancelledError | Exception) and not isinstance(
        error, StopIteration | StopAsyncIteration
    ):
        return error
    failure = ToolError(problem=f"the function ended with {type(error).__name__}")
    failure.__cause__ = error
    return failure


def asked_to_stop() -> bool:
    """Whether somebody cancelled the task that runs; if not, a cancellation that arrives is an
    error of what raised it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
