"""`Waiting`, a job for a connection with the future of its caller, and the delivery of results to
the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

from ...errors import HoldfastError

Job = Callable[[sqlite3.Connection], Any]


class Waiting:
    """A job and the future of its caller. If `alone` is true, the job runs outside a transaction,
    as VACUUM requires. If `tidy` is true, the job updates `SqliteWriter.recent` itself. `done` is
    called with the result, even if the caller was cancelled."""

    __slots__ = ("alone", "done", "error", "future", "job", "result", "size", "tidy")

    def __init__(
        self,
        job: Job,
        future: asyncio.Future[Any],
        *,
        size: int = 0,
        alone: bool = False,
        tidy: bool = False,
        done: Callable[[Any], None] | None = None,
    ) -> None:
        self.job = job
        self.future = future
        self.size = size
        self.alone = alone
        self.tidy = tidy
        self.done = done
        self.result: Any = None
        self.error: BaseException | None = None


def copied(error: BaseException) -> BaseException:
    """Return a copy of a Holdfast error, so that several callers can raise it in different tasks.
    Other errors are returned unchanged."""
    if not isinstance(error, HoldfastError):
        return error
    copy = type(error)(**error.fields)
    copy.__cause__ = error.__cause__
    return copy


def deliver(batch: list[Waiting]) -> None:
    """Set the result or the error of each caller's future. Called on the event loop."""
    for waiting in batch:
        if waiting.done is not None and waiting.error is None:
            waiting.done(waiting.result)
        if waiting.future.done():
            continue  # its caller was cancelled
        if waiting.error is not None:
            waiting.future.set_exception(waiting.error)
        else:
            waiting.future.set_result(waiting.result)
