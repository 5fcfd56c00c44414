"""Retries while a backend is unavailable: repeat an attempt until a deadline, report long waits,
and stop when the caller is cancelled, even if the driver hides the cancellation.

An attempt must be safe to repeat after a lost reply. Stores ensure this with event ids, and with
compare-and-set for everything else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ..backoff import Backoff
from ..cancellation import cancellations
from ..errors import StoreUnavailable

T = TypeVar("T")

PATIENCE = 15.0  # seconds that a call waits for its backend
SILENCE = 2.0  # seconds until a slow call is reported
FIRST, LONGEST = 0.02, 1.0  # seconds between two attempts; doubled each time


@contextmanager
def slow(tell: Callable[[], None] | None) -> Iterator[None]:
    """Context manager: call `tell` once if the block takes longer than `SILENCE` seconds."""
    timer = asyncio.get_running_loop().call_later(SILENCE, tell) if tell is not None else None
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


async def patiently(
    attempt: Callable[[], Awaitable[T]],
    passing: Callable[[Exception], bool],
    *,
    patience: float = PATIENCE,
    what: str = "the store",
) -> T:
    """Run `attempt` and return its result. The attempt is repeated as long as it raises an error
    for which `passing` returns true. Raises `StoreUnavailable` when the deadline passes, with the
    driver's error as its cause; every other error is raised at once. A cancelled caller does not
    retry, even if the driver's cleanup raised another error in place of the cancellation."""
    end = time.monotonic() + patience
    backoff = Backoff(FIRST, LONGEST, jitter=0.5)
    cancelled = cancellations()
    while True:
        try:
            return await attempt()
        except Exception as error:
            if cancellations() > cancelled:
                raise asyncio.CancelledError from error
            if not passing(error):
                raise
            wait = backoff.next()
            if time.monotonic() + wait > end:
                raise StoreUnavailable(
                    problem=f"{what} did not answer within {patience:g} s "
                    f"({type(error).__name__}); it is safe to retry the same call"
                ) from error
        await asyncio.sleep(wait)
