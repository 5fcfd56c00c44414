"""The harness and the stores for scripts, notebooks and WSGI apps: the same methods, without
`await`.

An event loop in a daemon thread does the work. The objects here are proxies that forward every
call to it, so a new method of the harness is available here too.
"""

from __future__ import annotations

import functools
from types import TracebackType
from typing import Any

from .errors import InvalidValue
from .harness import GRACE, Agent
from .harness import Harness as AsyncHarness
from .stores.port import Store as AsyncStore
from .stores.portal import PortalStore
from .stores.shared import shared_store
from .stores.vault.keys import Vault
from .sync_proxy import Loop, Remote, RemoteContext

__all__ = ["Harness", "Remote", "Store"]

METHODS = frozenset(name for name in vars(AsyncStore) if not name.startswith("_")) - {"aclose"}


def __dir__() -> list[str]:
    return sorted(__all__)


class Harness(RemoteContext):
    """`holdfast.Harness` without `await`, with the same settings and methods.

        with Harness(agent, store="sqlite:shop.db") as harness:
            session = harness.get_or_create("customer-42")
            result = session.send("Refund order 42")

    Any thread can use it, including a thread that runs its own event loop, as in a notebook. Ctrl-C
    during a call raises `KeyboardInterrupt` in the caller, and the run continues. Functions that
    you pass (tools, listeners) run on the loop of the harness, and must not call this module there.

    See [without async](../sync.md).
    """

    __slots__ = ()

    def __init__(self, agent: Agent, **settings: Any) -> None:
        super().__init__(AsyncHarness(agent, **settings), Loop())

    def __enter__(self) -> Harness:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> Harness:
        """Connect to the store, and recover unfinished runs."""
        self._loop.call(self._target.start)
        return self

    def get_or_create(self, id: str | None = None, **about: Any) -> Remote:
        """Return the session with this id, opened or created if necessary. Without an id, return a
        new session."""
        found: Remote = self._loop.local(self._loop.call(self._target.get_or_create, id, **about))
        return found

    def close(self, id: str | None = None, *, grace: float = GRACE) -> bool:
        """Close a live session. Without an id, hand over active runs to other workers, close the
        harness and end its thread. Returns False if there was nothing to close."""
        if id is not None:
            return bool(self._loop.call(self._target.close, id))
        return self._loop.close(functools.partial(self._target.aclose, grace))


class Store:
    """`holdfast.Store` without `await`, for any number of threads.

        with Store("sqlite:shop.db") as store:
            store.append(key("customer-42"), events, create=True)
            for event in store.read(key("customer-42")):
                ...

    A URL is opened once per process, as by `shared_store`. A store that you pass in must be a
    `PortalStore`; you close it yourself. `read`, `follow` and `verify` return plain generators, and
    `restore` takes a plain iterable. Ctrl-C during a call raises here; a write still completes.

    See [without async](../sync.md).
    """

    def __init__(self, store: str | PortalStore, *, vault: Vault | None = None) -> None:
        if not isinstance(store, str | PortalStore):
            raise InvalidValue(
                field="store",
                problem=f"is a {type(store).__name__}, which belongs to one event loop",
                remedy="pass a URL, or open it with connect(url, portal=True)",
            )
        self._owned = isinstance(store, str)
        self._store = shared_store(store, vault=vault) if isinstance(store, str) else store

    def __repr__(self) -> str:
        return f"<{self._store!r} of holdfast.sync>"

    def __enter__(self) -> Store:
        if self._owned:
            self._store.wait("connect")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return functools.partial(self._store.wait, name)

    def __dir__(self) -> list[str]:
        return sorted([*METHODS, "close"])

    def close(self) -> None:
        """Close the store if it was opened from a URL. Safe to call twice."""
        if self._owned:
            self._store.wait("aclose")
