"""The context of a store's job, and store methods that consist of one job."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from ...log.catalog import Project
from .payloads import PayloadStorage, Recent

P = ParamSpec("P")
T = TypeVar("T")


class Transaction(NamedTuple):
    """The connection, the payload storage, the logs written last, and the projection of rows."""

    conn: sqlite3.Connection
    payloads: PayloadStorage
    recent: Recent
    project: Project
    clock: Callable[[], int]


Job = Callable[Concatenate[Transaction, P], T]
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def reads(job: Job[P, T]) -> Method[P, T]:
    """A store method that runs `job` in a transaction of a reader."""

    @wraps(job)
    async def call(store: Any, /, *args: P.args, **options: P.kwargs) -> T:
        result: T = await store._readers.run(
            lambda conn: job(store._transaction(conn), *args, **options)
        )
        return result

    return call


def writes(job: Job[P, T], *, tidy: bool = False) -> Method[P, T]:
    """A store method that runs `job` in a transaction of the writer."""

    @wraps(job)
    async def call(store: Any, /, *args: P.args, **options: P.kwargs) -> T:
        result: T = await store._writer.run(
            lambda conn: job(store._transaction(conn), *args, **options), tidy=tidy
        )
        return result

    return call
