"""Displays of a log as of earlier events. Checkpoints are kept in memory, so that stepping through
a log folds only a few events for each step."""

from __future__ import annotations

from contextlib import aclosing

from msgspec.structs import replace

from ..log.catalog import Row
from ..log.events import Event
from ..log.state import fold
from ..stores.port import Store
from ..values.display import Display, display_of
from .recent import RecentMap

STEP = 256  # events between two checkpoints
LOGS = 8  # logs whose checkpoints are kept
MOST = 512  # checkpoints of one log; a longer log has a wider distance between them


class PastDisplays:
    """Computes displays of logs as of any event. A display depends only on the events up to that
    number, so a checkpoint stays valid until data is erased."""

    def __init__(self) -> None:
        self._logs: RecentMap[tuple[str, int], dict[int, Display]] = RecentMap(LOGS)

    def forget(self) -> None:
        """Drop all checkpoints."""
        self._logs.clear()

    async def display(self, store: Store, row: Row, at: int, start: Display) -> Display:
        """Return the display right after event `at`. `start` has the fields that do not come from
        events."""
        known = self._logs.get((row.log, row.erased))
        if known is None:
            known = self._logs[row.log, row.erased] = {}
        step = max(STEP, -(-row.head // MOST))
        nearest = max((seq for seq in known if seq <= at), default=0)
        shown = known.get(nearest, Display())
        batch: list[Event] = []
        read = store.read(row.key, after=nearest, before=at + 1, log=row.log)
        async with aclosing(read):
            async for event in read:
                batch.append(event)
                if event.seq % step == 0:
                    shown, batch = _after(shown, batch), []
                    known[event.seq] = shown
        shown = _after(shown, batch)
        names = {name: getattr(start, name) for name in ("session", "thread", "modes", "default")}
        return display_of(shown.state, (), start=replace(shown, **names))


def _after(display: Display, events: list[Event]) -> Display:
    return display_of(fold(events, display.state), events, start=display)
