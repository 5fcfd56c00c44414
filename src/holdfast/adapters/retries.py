"""Retries calls of adapters after conflicts with other writers, and while a store is
unavailable."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import HeadMoved, LogReplaced, SessionNotFound, StoreUnavailable

T = TypeVar("T")

ATTEMPTS = 3  # attempts of a call while the store is unavailable
PAUSE = 0.1  # seconds before the second attempt, doubled before each further one
CROWD = 0.02  # longest wait in seconds after another writer was faster


async def persist(attempt: Callable[[bool], Awaitable[T]]) -> T:
    """Retry a call until it succeeds: without limit after conflicts with other writers, and a few
    times while the store is unavailable. The call receives True if it is a retry.
    """
    failures = 0
    for number in itertools.count():
        try:
            return await attempt(number > 0)
        except (HeadMoved, LogReplaced, SessionNotFound):
            pause = random.uniform(0, CROWD)  # noqa: S311 - jitter
        except StoreUnavailable:
            failures += 1
            if failures == ATTEMPTS:
                raise
            pause = PAUSE * 2 ** (failures - 1)
        await asyncio.sleep(pause)
    raise AssertionError("unreachable")
