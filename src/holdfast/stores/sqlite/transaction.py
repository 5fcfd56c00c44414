"""The context of a store's jobs, and store methods that consist of one job."""

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
    """The connection, the payload storage, the logs written last, and the projection of rows."""

    conn: sqlite3.Connection
    payloads: PayloadStorage
    recent: Recent
    project: Project
    clock: Callable[[], int]


def reads(job: Job[Any, P, R]) -> Method[P, R]:
    """Return a store method that runs `job` in a transaction of a reader."""

    def run(store: Any, call: Callable[[Any], R]) -> Awaitable[R]:
        done: Awaitable[R] = store._readers.run(lambda conn: call(store._tables(conn)))
        return done

    return store_method(job, run)


def writes(job: Job[Any, P, R], *, tidy: bool = False) -> Method[P, R]:
    """Return a store method that runs `job` in a transaction of the writer."""

    def run(store: Any, call: Callable[[Any], R]) -> Awaitable[R]:
        done: Awaitable[R] = store._writer.run(lambda conn: call(store._tables(conn)), tidy=tidy)
        return done

    return store_method(job, run)
