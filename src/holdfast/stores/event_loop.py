"""Checks that an object is used on the event loop it was opened on. Use on another loop raises
`WrongLoop`."""

from __future__ import annotations

import asyncio

from ..errors import WrongLoop
from ..portal import in_trio


class OwnLoop:
    """The event loop that an object belongs to: the running loop, or else the first loop on which
    `check` is called. `what` is the name of the object in errors. If `free` is true, the object
    holds no resources of a loop: it starts without a loop, and may move to another loop after its
    own loop is closed."""

    __slots__ = ("_free", "_loop", "_what")

    def __init__(self, what: str, *, free: bool = False) -> None:
        self._what, self._free = what, free
        self._loop = None if free else _running()

    def check(self) -> None:
        """Raise `WrongLoop` if the caller runs on another event loop or under trio. Calls outside
        any loop are allowed."""
        running = _running()
        if running is self._loop or running is None:
            if running is None and in_trio():
                raise WrongLoop(what=self._what)
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
