"""`store_method`, which turns a function of a connection or of a transaction into a store
method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
C = TypeVar("C")
T = TypeVar("T")
R = TypeVar("R")

Job = Callable[Concatenate[C, P], R]
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def store_method(
    job: Job[C, P, R], run: Callable[[Any, Callable[[C], R]], Awaitable[T]]
) -> Method[P, T]:
    """Turn `job` into an async store method. `run` supplies the first argument of `job`, such as a
    connection; the other parameters of `job` are those of the method."""

    @wraps(job)
    async def call(store: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return await run(store, lambda context: job(context, *args, **options))

    return call
