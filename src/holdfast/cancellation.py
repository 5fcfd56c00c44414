"""Cancellation of asyncio tasks that works even if a library suppresses it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


async def ended(*tasks: asyncio.Future[Any], pause: float = 0.1) -> None:
    """Cancel tasks until they have ended, regardless of their outcome. Cancelling once is not
    enough: a database driver may mistake the cancellation for a reply and wait again, or an error
    of its cleanup may replace the cancellation, and the task continues as after any other error."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=pause)
    for task in tasks:
        forget(task)


def forget(task: asyncio.Future[Any]) -> None:
    """Ignore the result of a task that has ended, so that asyncio does not report its error. As a
    callback of a task whose waiters may all be cancelled, `task.add_done_callback(forget)`."""
    if not task.cancelled():
        task.exception()


@contextmanager
def cancellable() -> Iterator[None]:
    """Raise `CancelledError` if the running task was cancelled within the block, even if the block
    raised another error in its place or returned. Use it in loops that continue after errors and
    would otherwise never end."""
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
    """Return how often the running task was cancelled without ending."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
