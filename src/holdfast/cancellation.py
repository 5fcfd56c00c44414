"""Helpers that cancel asyncio tasks reliably, even if a library suppresses `CancelledError`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


async def ended(*tasks: asyncio.Future[Any], pause: float = 0.1) -> None:
    """Cancel tasks repeatedly until all have ended, and ignore their results and exceptions.
    Cancelling once is not enough: a database driver may mistake the cancellation for a reply and
    wait again, or an error in its cleanup may replace `CancelledError`, so that the task
    continues."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=pause)
    for task in tasks:
        forget(task)


def forget(task: asyncio.Future[Any]) -> None:
    """Mark the exception of a finished task as retrieved, so that asyncio does not log it. If all
    callers that await a task may be cancelled, use `task.add_done_callback(forget)`."""
    if not task.cancelled():
        task.exception()


async def outcomes(*futures: asyncio.Future[T]) -> list[T | BaseException]:
    """Wait until all futures are done, and return the result or the exception of each. If all are
    done, this returns without a pause on every version of Python; `asyncio.gather` pauses before
    Python 3.12."""
    if left := [future for future in futures if not future.done()]:
        await asyncio.wait(left)
    ends: list[T | BaseException] = []
    for future in futures:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        ends.append(future.result() if error is None else error)
    return ends


async def completed(*futures: asyncio.Future[Any]) -> None:
    """Wait until all futures are done. Raises the first exception."""
    for end in await outcomes(*futures):
        if isinstance(end, BaseException):
            raise end


@contextmanager
def cancellable() -> Iterator[None]:
    """Context manager that raises `CancelledError` if the running task was cancelled within the
    block, even if the block suppressed the cancellation or raised another error instead. Use it in
    loops that continue after errors and would otherwise never end."""
    before = cancellations()
    try:
        yield
    except Exception as error:
        if cancellations() > before:
            raise asyncio.CancelledError from error
        raise
    if cancellations() > before:
        raise asyncio.CancelledError


def cancellations() -> int:
    """Return how often the cancellation of the running task was requested. See
    `asyncio.Task.cancelling`."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
