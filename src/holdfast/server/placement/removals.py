"""Which sessions this server is removing right now. A session is closed before it is gone; whoever
reads it waits here to learn which of the two it was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from ...log.events import Scope


class Removals:
    """The removals that are going on in this process."""

    def __init__(self) -> None:
        self._going: dict[Scope, set[asyncio.Future[None]]] = {}

    @contextmanager
    def of(self, scope: Scope) -> Iterator[None]:
        """A session is being removed for as long as the block lasts, whether that succeeds or
        not."""
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
        """Wait until nobody here removes this session any more."""
        while going := self._going.get(scope):
            await asyncio.wait([*going])
