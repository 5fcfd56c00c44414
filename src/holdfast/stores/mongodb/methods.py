"""Store methods that consist of one job, repeated while the server is unavailable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from .heads import MongoHeads
from .schema import MongoDatabase

P = ParamSpec("P")
T = TypeVar("T")

Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def on_database(
    job: Callable[Concatenate[MongoDatabase, P], Awaitable[T]], *, long: bool = False
) -> Method[P, T]:
    """A store method that runs `job` on its database; a `long` one has more time."""

    @wraps(job)
    async def call(store: Any, /, *args: P.args, **options: P.kwargs) -> T:
        result: T = await store._ride(lambda: job(store._db, *args, **options), long=long)
        return result

    return call


def on_heads(job: Callable[Concatenate[MongoHeads, P], Awaitable[T]]) -> Method[P, T]:
    """A store method that runs `job` on the heads of its logs."""

    @wraps(job)
    async def call(store: Any, /, *args: P.args, **options: P.kwargs) -> T:
        result: T = await store._ride(lambda: job(store._heads, *args, **options))
        return result

    return call
