"""A store that is opened at its first use."""

from __future__ import annotations

import asyncio

from ...errors import InvalidValue, StoreUnavailable
from ...stores import connect
from ...stores.port import Store


class LazyStore:
    """A store, or the URL of one to open. A URL with an unknown scheme raises an error
    immediately."""

    def __init__(self, store: Store | str) -> None:
        self._given = None if isinstance(store, str) else store
        self._connecting = connect(store) if isinstance(store, str) else None
        self._scheme = store.partition(":")[0] if isinstance(store, str) else None
        self._task: asyncio.Task[Store] | None = None

    def __repr__(self) -> str:
        """Return the store's kind and, once it is open, its location; never its URL."""
        store = self._given
        if self._task is not None and self._task.done() and not _failed(self._task):
            store = self._task.result()
        return (
            f"{self._scheme}:…" if store is None else "{0.kind} {0.location}".format(store.info())
        )

    async def store(self) -> Store:
        """Return the open store. Concurrent callers share one attempt. A call after a failure, or
        in a new event loop after the old loop was closed, opens the store again."""
        if self._given is not None:
            return self._given
        self._leave_closed_loop()
        if self._task is None or _failed(self._task):
            self._task = asyncio.create_task(self._open())
        task = self._task
        # Cancelling one caller must not cancel the others.
        store = await asyncio.shield(task)
        if self._task is not task:
            raise StoreUnavailable(problem="the session store was closed while it was opening")
        return store

    async def _open(self) -> Store:
        assert self._connecting is not None
        return await self._connecting

    async def close(self) -> None:
        """Close a store that was opened from a URL, even while it is opening. The next use opens
        it again."""
        self._leave_closed_loop()
        task, self._task = self._task, None
        if task is None:
            return
        await asyncio.wait([task])
        if not _failed(task):
            await task.result().aclose()

    def _leave_closed_loop(self) -> None:
        """Forget a store that was opened in a closed event loop. Raises `InvalidValue` if the store
        is open in another running loop, because it cannot be awaited from here."""
        if self._task is None or (loop := self._task.get_loop()) is asyncio.get_running_loop():
            return
        if not loop.is_closed():
            raise InvalidValue(
                field="store",
                problem="is open in another event loop",
                remedy="use one ClaudeSessionStore per event loop",
            )
        self._task = None


def _failed(task: asyncio.Task[Store]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
