"""Tracks the sessions that this process is deleting. A session is closed before it is deleted; its
readers wait until the deletion has finished, to learn whether the session still exists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from ...log.events import Scope


class Removals:
    """The deletions in progress in this process."""

    def __init__(self) -> None:
        self._going: dict[Scope, set[asyncio.Future[None]]] = {}

    @contextmanager
    def of(self, scope: Scope) -> Iterator[None]:
        """Context manager that marks a session as being deleted."""
        done = asyncio.get_running_loop().create_future()
        going = self._going.setdefault(scope, set())
        going.add(done)
        try:
            yield
        finally:
            done.set_result(None)
            going.discard(done)
            if not going:
                self._going.pop(scope, None)

    async def over(self, scope: Scope) -> None:
        """Wait until no deletion of this session is in progress."""
        while going := self._going.get(scope):
            await asyncio.wait([*going])
