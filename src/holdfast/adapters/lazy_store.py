"""The store of an adapter: an open store, or a URL whose store is opened on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import InvalidValue, StoreUnavailable
from ..stores.port import Store
from ..stores.portal import PortalStore
from ..stores.shared import SharedStore, shared_store

T = TypeVar("T")


def check_store(store: object) -> None:
    """Raise `InvalidValue` unless this is a store or a URL."""
    if not isinstance(store, str) and not hasattr(store, "rows"):
        raise InvalidValue(
            field="store",
            problem=f"is {type(store).__name__}",
            remedy="pass the URL of a store, such as 'sqlite:agents.db', or an open Store",
        )


class LazyStore:
    """An open store, or a store that is opened from a URL once per process. A URL with an unknown
    scheme, or an object that is not a store, raises an error at once."""

    def __init__(self, store: Store | str) -> None:
        check_store(store)
        self._url = store if isinstance(store, str) else None
        self._store = shared_store(store) if isinstance(store, str) else store

    def __repr__(self) -> str:
        """Return the kind of the store and, once it is open, its location. The URL is never
        included."""
        try:
            return "{0.kind} {0.location}".format(self._store.info())
        except StoreUnavailable:
            return f"{(self._url or '').partition(':')[0]}:…"

    async def run(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Call a function with the store, and return its result. If the store was opened from a
        URL, or is a `PortalStore`, the function runs on the event loop of the store, so the caller
        may be on any loop, or under trio."""
        store = self._store
        if isinstance(store, PortalStore):
            return await store.portal.run(_with, store, work)
        return await work(store)

    def wait(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Like `run`, but called from a thread without an event loop: blocks until the function has
        ended, and returns its result."""
        store = self._portal_store()
        result: T = store.portal.wait(_with, store, work)
        return result

    def wait_closed(self) -> None:
        """Like `close`, but called from a thread without an event loop: blocks until it has
        ended."""
        if self._url is not None:
            self._portal_store().portal.wait(self.close)

    def _portal_store(self) -> PortalStore:
        if isinstance(self._store, PortalStore):
            return self._store
        raise InvalidValue(
            field="store",
            problem="belongs to an event loop, which a call without `await` cannot reach",
            remedy="pass the URL of the store, or a PortalStore",
        )

    async def connect(self) -> None:
        """Open the store now, if it is given by a URL. If this fails, the next call tries again."""
        if isinstance(self._store, SharedStore):
            await self._store.connect()

    async def close(self) -> None:
        """Close the store if it was opened from a URL, even while it is opening, unless other code
        in this process uses it too. The next use opens the store again."""
        if self._url is not None:
            store, self._store = self._store, shared_store(self._url)
            await store.aclose()


async def _with(store: PortalStore, work: Callable[[Store], Awaitable[T]]) -> T:
    if isinstance(store, SharedStore):
        await store.connect()  # not in `work`, which may be retried: opening is not retried
    return await work(store)
