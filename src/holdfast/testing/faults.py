"""A store that fails, stalls or crashes at planned calls.

Wrap any store in `FaultyStore` and plan `Fault`s. Each fault has a method, the number of the call,
and whether it occurs before the inner call (the request is lost) or after it (the reply is lost,
but the work is done). Stores need no code of their own for this.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import StoreUnavailable
from ..stores.checked import STREAMS
from ..stores.port import Store
from ..stores.wrapped import WrappedStore

T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class PlannedFault:
    """A failure at the `call`-th call of `method`, counted from 1.

    With `after`, it occurs when the inner call is done; in a stream (`read`, `follow`, `verify`),
    after its first item was returned.

    See [writing a store](../writing-a-store.md) and [simulation](../simulation.md).
    """

    method: str
    call: int = 1
    after: bool = False

    async def strike(self) -> None:
        raise NotImplementedError


Fault = PlannedFault


@dataclass(eq=False, kw_only=True)
class Fail(PlannedFault):
    """A fault that raises `StoreUnavailable`, or another error.

    See [writing a store](../writing-a-store.md) and [simulation](../simulation.md).
    """

    error: Exception = field(default_factory=lambda: StoreUnavailable(problem="a planned fault"))

    async def strike(self) -> None:
        raise self.error


@dataclass(eq=False, kw_only=True)
class Stall(PlannedFault):
    """A fault that makes the call wait. `reached` is set when the call arrives, and the call
    continues when `go` is set.

    See [writing a store](../writing-a-store.md) and [simulation](../simulation.md).
    """

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def strike(self) -> None:
        self.reached.set()
        await self.go.wait()


@dataclass(eq=False, kw_only=True)
class Die(PlannedFault):
    """A fault that kills this process as `kill -9` does, without running handlers or flushing
    files.

    See [writing a store](../writing-a-store.md) and [simulation](../simulation.md).
    """

    async def strike(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class FaultyStore(WrappedStore):
    """A store that passes each call on to an inner store, unless `plan` has a fault for the call.
    `plan` may change at any time; `calls` counts the calls of each method so far. `info` and
    `aclose` never fail.

    See [writing a store](../writing-a-store.md) and [simulation](../simulation.md).
    """

    def __init__(self, store: Store, plan: Iterable[PlannedFault] = ()) -> None:
        super().__init__(store)
        self.plan = list(plan)
        self.calls: Counter[str] = Counter()

    def _pass_on(self, method: str, *args: Any, **options: Any) -> Any:
        answer = super()._pass_on(method, *args, **options)
        if method in ("info", "aclose"):
            return answer
        return self._stream(method, answer) if method in STREAMS else self._call(method, answer)

    def _count(self, method: str) -> int:
        self.calls[method] += 1
        return self.calls[method]

    async def _strike(self, method: str, call: int, *, after: bool) -> None:
        for fault in self.plan:
            if (fault.method, fault.call, fault.after) == (method, call, after):
                await fault.strike()

    async def _call(self, method: str, inner: Coroutine[Any, Any, T]) -> T:
        call = self._count(method)
        try:
            await self._strike(method, call, after=False)
        except BaseException:
            inner.close()
            raise
        answer = await inner
        await self._strike(method, call, after=True)
        return answer

    async def _stream(self, method: str, inner: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        call, struck = self._count(method), False
        async with aclosing(inner):
            await self._strike(method, call, after=False)
            async for item in inner:
                yield item
                if not struck:
                    struck = True
                    await self._strike(method, call, after=True)
            if not struck:
                await self._strike(method, call, after=True)
