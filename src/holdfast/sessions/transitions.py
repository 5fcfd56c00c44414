"""The phase changes of a session, read from its log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from ..log.catalog import MOVES, Phase, project
from ..log.events import Event
from .changes import Changes


class Transition(Struct, frozen=True, kw_only=True):
    """One change of phase: its event, time (ms), actor and reason.

    See [the life of a session](../sessions.md).
    """

    session: str
    before: Phase
    phase: Phase
    kind: str
    seq: int
    at: int
    actor: str | None = None
    reason: str | None = None


async def follow(
    changes: Changes, id: str, after: int, wait: bool = True
) -> AsyncGenerator[Transition, None]:
    phase: Phase = "created"
    async with aclosing(changes.store.follow(changes.key(id))) as events:
        async for event in events:
            if isinstance(event, Event):
                before, phase = phase, _moved(phase, event)
                if phase != before and event.seq > after:
                    yield _transition(id, before, phase, event)
            elif not wait:
                return


def _moved(phase: Phase, event: Event) -> Phase:
    for op in project(event):
        if op.do == "move":
            moves: dict[Any, Any] = MOVES.get(op.value, {})
            phase = moves.get(phase, phase)
    return phase


def _transition(id: str, before: Phase, phase: Phase, event: Event) -> Transition:
    try:
        data = event.json()
    except msgspec.MsgspecError:
        data = None
    reason = data.get("reason") if isinstance(data, dict) else None
    return Transition(
        session=id,
        before=before,
        phase=phase,
        kind=event.kind,
        seq=event.seq,
        at=event.at,
        actor=event.actor,
        reason=reason if isinstance(reason, str) else None,
    )
