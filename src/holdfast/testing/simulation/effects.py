"""The external effects of tools, in the order in which they happened."""

from __future__ import annotations

from msgspec import Struct

from .loop import Scheduler


class Effect(Struct, frozen=True):
    """One external effect of a tool call. `key` is the idempotency key of the call."""

    at: float
    process: str
    session: str
    thread: str
    tool: str
    call: str
    key: str
    repeatable: bool = False


class EffectLedger:
    """Records all effects. A crash of a simulated process does not remove its effects."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.all: list[Effect] = []

    def add(
        self,
        process: str,
        session: str,
        thread: str,
        tool: str,
        call: str,
        key: str,
        *,
        repeatable: bool = False,
    ) -> None:
        now = self._scheduler.now
        self.all.append(Effect(now, process, session, thread, tool, call, key, repeatable))
