"""Cancellation of asyncio tasks that also works where a library hides it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


async def ended(*tasks: asyncio.Future[Any], pause: float = 0.1) -> None:
    """Cancel tasks until they have ended, whatever they end with. Once is not enough: a driver
    may take a cancellation for a reply that came, and wait on; or an error of its cleanup takes
    the place of the cancellation, and the task goes on as after any other error."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=pause)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen, so that nobody reports it


@contextmanager
def cancellable() -> Iterator[None]:
    """Raise `CancelledError` where the running task was cancelled within the block, whatever the
    block made of it: an error that cleanup raised in its place, or a result. For loops that go on
    after errors, which would otherwise never end."""
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
    """How often the running task was cancelled and did not end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
