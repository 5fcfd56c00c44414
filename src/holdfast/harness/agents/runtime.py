"""The objects that the sessions and drivers of one running harness share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from ...log.events import Key
from ...stores.port import Store
from ..sandbox.port import Place, Reason
from .config import Config
from .meter import Meter

OUTPUTS = 1_000  # output types kept in memory; older ones are read from the log


class Outputs(dict[tuple[str, int], Any]):
    """The tools that validate typed answers, by log and message number. Only the latest `OUTPUTS`
    entries are kept."""

    def __setitem__(self, mark: tuple[str, int], made: Any) -> None:
        super().__setitem__(mark, made)
        while len(self) > OUTPUTS:
            del self[next(iter(self))]


class HarnessRuntime:
    """The store, the open sandboxes and the output types of one harness, and the `meter` of its
    budgets, if it has any. `nudge` opens a log in this process if necessary, and ensures that a
    driver checks it."""

    def __init__(
        self,
        config: Config,
        store: Store,
        nudge: Callable[[Key], None] = lambda key: None,
        meter: Meter | None = None,
    ) -> None:
        self.config, self.store, self.nudge, self.meter = config, store, nudge, meter
        self.outputs = Outputs()
        self._places: dict[Key, Place] = {}
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def place(self, key: Key, agent: str) -> Place:
        """Return the sandbox of a session. It is opened on first use and stays open while the
        session is live."""
        key = Key(key.tenant, key.session, "main")
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            if key not in self._places:
                self._places[key] = await self.config.sandbox.open(
                    key, agent=agent, resources=self.config.resources
                )
            return self._places[key]

    async def close_place(self, key: Key, reason: Reason) -> None:
        """Close the sandbox of a session, if it is open."""
        if (place := self._places.pop(key, None)) is not None:
            await place.close(reason)
