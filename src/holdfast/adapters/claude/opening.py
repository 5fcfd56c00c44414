"""A store that is opened when it is first needed, once, and closed by whoever opened it."""

from __future__ import annotations

import asyncio

from ...errors import StoreUnavailable
from ...store import Store
from ...stores import connect


class Opening:
    """A store, or the URL of one to open. A URL of no known scheme is refused at once."""

    def __init__(self, store: Store | str) -> None:
        self._given = None if isinstance(store, str) else store
        self._connecting = connect(store) if isinstance(store, str) else None
        self._task: asyncio.Task[Store] | None = None

    async def store(self) -> Store:
        """The open store. Callers at the same time share one attempt; the next one after a
        failure makes another."""
        if self._given is not None:
            return self._given
        if self._task is None or _failed(self._task):
            self._task = asyncio.create_task(self._open())
        task = self._task
        # A caller that is cancelled leaves the others their store.
        store = await asyncio.shield(task)
        if self._task is not task:
            raise StoreUnavailable(problem="the session store was closed while it opened")
        return store

    async def _open(self) -> Store:
        assert self._connecting is not None
        return await self._connecting

    async def close(self) -> None:
        """Close what was opened here, also what is still opening. The next use opens anew."""
        task, self._task = self._task, None
        if task is None:
            return
        await asyncio.wait([task])
        if not _failed(task):
            await task.result().aclose()


def _failed(task: asyncio.Task[Store]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
