"""Builds store methods from single functions that run on a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from ..jobs import Job, Method, store_method
from .database import Link
from .tables import PostgresTables

P = ParamSpec("P")
T = TypeVar("T")


def on_link(
    job: Job[Link, P, Awaitable[T]],
    *,
    whole: bool = False,
    snapshot: bool = False,
    within: float | None = None,
) -> Method[P, T]:
    """Return a store method that runs `job`: a single statement, or with `whole` a transaction.
    With `snapshot`, all statements of the transaction see the same state. Each statement is limited
    to `within` seconds."""

    def run(store: Any, call: Callable[[Link], Awaitable[T]]) -> Awaitable[T]:
        done: Awaitable[T] = store._run(call, whole=whole, snapshot=snapshot, within=within)
        return done

    return store_method(job, run)


def on_tables(
    job: Job[PostgresTables, P, Awaitable[T]], *, within: float | None = None
) -> Method[P, T]:
    """Return a store method that runs `job` on the tables, in a transaction."""

    def run(store: Any, call: Callable[[PostgresTables], Awaitable[T]]) -> Awaitable[T]:
        done: Awaitable[T] = store._run(lambda link: call(store._tables(link)), within=within)
        return done

    return store_method(job, run)
