"""Store methods that consist of one job on a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from .database import Link

P = ParamSpec("P")
T = TypeVar("T")

Job = Callable[Concatenate[Link, P], Awaitable[T]]
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def runs(job: Job[P, T], *, whole: bool = False, within: float | None = None) -> Method[P, T]:
    """A store method that runs `job`: a single statement, or with `whole` a transaction. Each
    statement has `within` seconds."""

    @wraps(job)
    async def call(store: Any, /, *args: P.args, **options: P.kwargs) -> T:
        result: T = await store._run(
            lambda link: job(link, *args, **options), whole=whole, within=within
        )
        return result

    return call
