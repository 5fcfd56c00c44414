"""The open logs of one harness. Each log is opened once, regardless of the number of callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from ...cancellation import completed
from ...log.events import Event, Key
from ...stores.port import Store
from .log import Live


class OpenLogs:
    """Opens and closes the logs of one harness. `look` is called with each event of each log."""

    def __init__(self, store: Store, look: Callable[[Key, Event], None]) -> None:
        self._store, self._look = store, look
        self._logs: dict[Key, Live] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Key]:
        return iter([*self._logs])

    def get(self, where: Key) -> Live | None:
        return self._logs.get(where)

    async def open(self, where: Key) -> Live:
        """Open a log, or return it if it is open. Raises `SessionNotFound` if it does not exist."""
        if (known := self._logs.get(where)) is not None and known.failure is None:
            return known
        live = Live(self._store, where)
        await live.open()
        known = self._logs.get(where)
        if known is not None and known.failure is None:  # another task opened it first
            await live.aclose()
            return known
        self._logs[where] = live
        live.watchers.append(lambda event: self._look(where, event))
        return live

    async def close(self, where: Key) -> None:
        if (live := self._logs.pop(where, None)) is not None:
            await live.aclose()

    def leave(self, where: Key) -> None:
        """Close a log in the background."""
        task = asyncio.create_task(self.close(where))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def aclose(self) -> None:
        for where in self:
            await self.close(where)
        await completed(*self._leaving)
