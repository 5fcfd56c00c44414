"""The event loop that an object was opened on; using it on another loop raises `WrongLoop`."""

from __future__ import annotations

import asyncio

from ..errors import WrongLoop


class OwnLoop:
    """The event loop that `what` belongs to: the running one, or the first one that it is checked
    on. An object that holds no resources of its loop is `free` to change once that loop is
    closed."""

    __slots__ = ("_free", "_loop", "_what")

    def __init__(self, what: str, *, free: bool = False) -> None:
        self._what, self._free = what, free
        self._loop = None if free else _running()

    def check(self) -> None:
        """Reject use on another loop (`WrongLoop`); code outside any loop may read."""
        running = _running()
        if running is self._loop or running is None:
            return
        if self._loop is None or (self._free and self._loop.is_closed()):
            self._loop = running
            return
        raise WrongLoop(what=self._what)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
