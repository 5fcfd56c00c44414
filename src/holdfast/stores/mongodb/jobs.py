"""Store methods that run a single function, repeated while the server is unavailable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from ..jobs import Job, Method, store_method
from .heads import MongoHeads
from .schema import MongoDatabase

P = ParamSpec("P")
T = TypeVar("T")


def on_database(job: Job[MongoDatabase, P, Awaitable[T]], *, long: bool = False) -> Method[P, T]:
    """Return a store method that runs `job` on its database. If `long` is true, the job has more
    time."""

    def run(store: Any, call: Callable[[MongoDatabase], Awaitable[T]]) -> Awaitable[T]:
        done: Awaitable[T] = store._ride(lambda: call(store._db), long=long)
        return done

    return store_method(job, run)


def on_heads(job: Job[MongoHeads, P, Awaitable[T]]) -> Method[P, T]:
    """Return a store method that runs `job` on the heads of its logs."""

    def run(store: Any, call: Callable[[MongoHeads], Awaitable[T]]) -> Awaitable[T]:
        done: Awaitable[T] = store._ride(lambda: call(store._heads))
        return done

    return store_method(job, run)
