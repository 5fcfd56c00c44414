"""Builds store methods from single functions, which are retried while the server is unavailable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from ..jobs import Job, Method, store_method
from .heads import MongoHeads
from .schema import MongoDatabase

P = ParamSpec("P")
T = TypeVar("T")


def on_database(job: Job[MongoDatabase, P, Awaitable[T]], *, long: bool = False) -> Method[P, T]:
    """Return a store method that runs `job` on the store's database. With `long`, the job has more
    time."""

    def run(store: Any, call: Callable[[MongoDatabase], Awaitable[T]]) -> Awaitable[T]:
        done: Awaitable[T] = store._ride(lambda: call(store._db), long=long)
        return done

    return store_method(job, run)


def on_heads(job: Job[MongoHeads, P, Awaitable[T]]) -> Method[P, T]:
    """Return a store method that runs `job` with the store's `MongoHeads`."""

    def run(store: Any, call: Callable[[MongoHeads], Awaitable[T]]) -> Awaitable[T]:
        done: Awaitable[T] = store._ride(lambda: call(store._heads))
        return done

    return store_method(job, run)
