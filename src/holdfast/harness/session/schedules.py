"""The recurring schedules of an open session."""

from __future__ import annotations

from typing import Any, TypeVar

from ...log.events import NewEvent, Payload
from ...log.state import State
from ...sessions.schedules import Schedules
from .base import SessionCore

P = TypeVar("P", bound=Payload)


class OpenLog:
    """The log of an open thread, as `Schedules` reads and changes it."""

    def __init__(self, core: SessionCore[Any]) -> None:
        self._core = core

    async def state(self, *, changing: bool = True) -> State:
        if changing:
            self._core.check()
        else:
            self._core.check_open()
        return self._core.live.state

    async def payload(self, seq: int, kind: type[P]) -> P | None:
        return await self._core.live.payload(seq, kind)

    async def append_at(self, event: NewEvent, head: int) -> bool:
        return await self._core.append_if(event, live=self._core.live, head=head)


def schedules_of(core: SessionCore[Any]) -> Schedules:
    """Return the schedules of an open thread."""
    return Schedules(OpenLog(core))
