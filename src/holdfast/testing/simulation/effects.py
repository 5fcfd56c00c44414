"""The outside world: every effect that a tool had, in order."""

from __future__ import annotations

from msgspec import Struct

from .loop import Scheduler


class Effect(Struct, frozen=True):
    """Something that a tool did: `key` is the idempotency key of its call."""

    at: float
    process: str
    session: str
    thread: str
    tool: str
    call: str
    key: str
    repeatable: bool = False


class EffectLedger:
    """The ledger of effects. It survives every crash."""

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
