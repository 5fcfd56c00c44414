"""The timeout of a tool call. It is paused while the call waits for the user."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from types import TracebackType


class Allowance:
    """A timeout for a tool call, like `asyncio.timeout`. It is paused while the call, or a call
    nested in it, waits for the user."""

    def __init__(self, seconds: float | None = None, outer: Allowance | None = None) -> None:
        self._scope, self._outer = asyncio.timeout(seconds), outer
        self._waits, self._left = 0, 0.0

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._scope.__aexit__(kind, error, trace)

    @property
    def over(self) -> bool:
        return self._scope.expired()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Pause this timeout, and those of the enclosing calls, inside a `with` block."""
        with contextlib.nullcontext() if self._outer is None else self._outer.held():
            self._hold()
            try:
                yield
            finally:
                self._go_on()

    def _hold(self) -> None:
        when, self._waits = self._scope.when(), self._waits + 1
        if when is not None and not self.over:
            self._left = when - asyncio.get_running_loop().time()
            self._scope.reschedule(None)

    def _go_on(self) -> None:
        self._waits -= 1
        if self._left and not self._waits:
            when = asyncio.get_running_loop().time() + self._left
            self._left = 0.0
            with contextlib.suppress(RuntimeError):  # the work has ended meanwhile
                self._scope.reschedule(when)
