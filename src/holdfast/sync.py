"""The harness for scripts and notebooks: the same methods, without `await`.

One event loop in a daemon thread does the work. The objects here are proxies that forward every
call to it, so a new method of the harness is available here too.
"""

from __future__ import annotations

import functools
from typing import Any

from .harness import GRACE, Agent
from .harness import Harness as AsyncHarness
from .sync_proxy import Loop, Remote, RemoteContext

__all__ = ["Harness", "Remote"]


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
        """Close a live session. Without an id, hand over active runs, close the harness and end its
        thread. Returns False if there was nothing to close."""
        if id is not None:
            return bool(self._loop.call(self._target.close, id))
        return self._loop.close(functools.partial(self._target.aclose, grace))
