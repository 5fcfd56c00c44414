"""`shared_store`, which returns a store that is opened once per process and can be used from any
thread or event loop."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - registers its hook first, so ours runs earlier
import threading
from collections.abc import Generator
from typing import Any

from ..errors import StoreUnavailable
from ..portal import Portal, process_portal
from . import connect
from .port import Store, StoreInfo
from .portal import PortalStore
from .url_display import address
from .vault.keys import Vault

NOWHERE = object()  # the loop of a store that is not open
LAST = 5.0  # seconds for closing the open stores when the process ends

Name = tuple[str, Vault | None]


class _OpenStore:
    """A store that is open or being opened, and the `SharedStore` handles that use it."""

    def __init__(self, opening: asyncio.Task[Store]) -> None:
        self.opening = opening
        opening.add_done_callback(lambda _: self.failed)  # retrieves the error
        self.users: set[SharedStore] = set()

    @property
    def failed(self) -> bool:
        task = self.opening
        return task.done() and (task.cancelled() or task.exception() is not None)

    async def aclose(self) -> None:
        await asyncio.wait([self.opening])
        if not self.failed:
            await self.opening.result().aclose()


# The open stores of each portal. Only code on the portal's loop changes them. A forked process has
# its own portal, and does not touch the stores of its parent.
_open_stores: dict[Portal, dict[Name, _OpenStore]] = {}


class SharedStore(PortalStore):
    """A handle to the store at a URL, created by `shared_store`. Await the handle, or use it with
    `async with`, to open the store now; otherwise the first call opens it."""

    inner: Any  # a Store once it is open

    def __init__(self, url: str, vault: Vault | None) -> None:
        self.inner = None
        self._home = NOWHERE
        self._opened_on: Portal | None = None
        self._connecting = connect(url, vault=vault)  # rejects an unknown scheme now
        self._name = (url, vault)
        self._closed = False

    def __repr__(self) -> str:
        return f"shared_store({address(self._name[0])!r})"

    def __await__(self) -> Generator[Any, None, SharedStore]:
        return self.connect().__await__()

    async def __aenter__(self) -> SharedStore:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def connect(self) -> SharedStore:
        """Open the store now, so that errors appear at startup."""
        await self.portal.run(self._store)
        return self

    @property
    def portal(self) -> Portal:
        return process_portal()

    def info(self) -> StoreInfo:
        if self.inner is None:
            raise StoreUnavailable(problem="the store is not open yet: await it first")
        found: StoreInfo = self.inner.info()
        return found

    async def aclose(self) -> None:
        """Close this handle. The store is closed with its last handle. Safe to call twice."""
        await self.portal.run_to_end(self._leave)

    async def _store(self) -> Store:
        portal = self.portal
        if self._opened_on is portal:
            return self.inner  # type: ignore[no-any-return]
        self._check_open()
        known = _open_stores.setdefault(portal, {})
        shared = known.get(self._name)
        if shared is None or shared.failed:
            shared = known[self._name] = _OpenStore(asyncio.create_task(self._connect()))
            _close_at_exit()
        shared.users.add(self)
        store = await asyncio.shield(shared.opening)  # other handles may wait for it
        self._check_open()
        self.inner, self._opened_on, self._home = store, portal, portal.loop
        return store

    async def _connect(self) -> Store:
        return await self._connecting

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(problem="the store is closed")

    async def _leave(self) -> None:
        known = _open_stores.get(self.portal, {})
        self._closed, self._opened_on, self._home = True, None, NOWHERE
        shared = known.get(self._name)
        if shared is not None and self in shared.users:
            shared.users.discard(self)
            if not shared.users:
                del known[self._name]
                await shared.aclose()


def shared_store(url: str, *, vault: Vault | None = None) -> SharedStore:
    """Return the store at `url` for use from any event loop, thread or trio task of this process.

        store = shared_store("sqlite:shop.db")
        await store.append(key("customer-42"), events, create=True)

    The store is opened once per process, on an event loop in a daemon thread: all handles with the
    same URL (as text) and vault share it. It is opened by the first call, or by awaiting the
    handle, and closed with the last handle, or when the process ends. If opening fails, the next
    call tries again. In a forked process, a handle opens the store again.

    Otherwise the handle behaves like any `PortalStore`. `holdfast.sync.Store` uses it without
    `await`.

    See [stores](../stores.md).
    """
    return SharedStore(url, vault)


# The end of the process


def _close_at_exit() -> None:
    """Register a hook, once per process, that closes the open stores when the main thread ends. It
    uses the same hook as `concurrent.futures`, and runs before Python stops the threads of
    executors, which stores need for closing. A hook of `atexit` would run too late."""
    global _registered  # noqa: PLW0603 - once per process
    if not _registered:
        _registered = True
        getattr(threading, "_register_atexit", atexit.register)(_exit)


_registered = False


def _exit() -> None:
    portal = process_portal()
    if _open_stores.get(portal):
        portal.wait(_close_all, portal)


async def _close_all(portal: Portal) -> None:
    stores = [*_open_stores.pop(portal, {}).values()]
    closing = asyncio.gather(*(store.aclose() for store in stores), return_exceptions=True)
    await asyncio.wait([closing], timeout=LAST)
