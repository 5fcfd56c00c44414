"""`Transaction`, the context that each job of a store receives, and decorators that turn a job into
a store method."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ...log.catalog import Project
from ..jobs import Job, Method, store_method
from .payloads import PayloadStorage, Recent

P = ParamSpec("P")
R = TypeVar("R")


class Transaction(NamedTuple):
    """The context of a job: the connection, the payload storage, the cache of recently written
    logs, the projection of rows, and the clock."""

    conn: sqlite3.Connection
    payloads: PayloadStorage
    recent: Recent
    project: Project
    clock: Callable[[], int]


def reads(job: Job[Any, P, R]) -> Method[P, R]:
    """Turn `job` into a store method that runs it in a read transaction."""

    def run(store: Any, call: Callable[[Any], R]) -> Awaitable[R]:
        done: Awaitable[R] = store._readers.run(lambda conn: call(store._tables(conn)))
        return done

    return store_method(job, run)


def writes(job: Job[Any, P, R], *, tidy: bool = False) -> Method[P, R]:
    """Turn `job` into a store method that runs it in a write transaction. Pass `tidy` if the job
    updates `Transaction.recent` itself."""

    def run(store: Any, call: Callable[[Any], R]) -> Awaitable[R]:
        done: Awaitable[R] = store._writer.run(lambda conn: call(store._tables(conn)), tidy=tidy)
        return done

    return store_method(job, run)
