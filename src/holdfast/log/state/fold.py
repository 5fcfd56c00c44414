"""The fold: computes the state of a log from its events. Pure: reads no clock, does no I/O.

The step for each kind of event is a function in the module of its topic. An event of a kind without
a step changes only the head of the state. The same applies to an event whose payload was erased or
cannot be read, unless its kind is in `UNREADABLE`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..codec import typed, understood
from ..events import CORE_NAMESPACES, Event
from . import choices, life, runs, schedules
from .values import State
from .work import StateDraft, Step

STEPS: dict[str, Step] = {**life.STEPS, **runs.STEPS, **choices.STEPS, **schedules.STEPS}
UNREADABLE = frozenset(
    (*life.UNREADABLE, *runs.UNREADABLE, *choices.UNREADABLE, *schedules.UNREADABLE)
)


def fold(events: Iterable[Event], start: State | None = None) -> State:
    """Return the state after `events`, which follow the events of `start`; events that `start`
    already includes are skipped. Never raises for the content of an event.

    See [state and transcript](../the-log.md#state-and-transcript).
    """
    work = StateDraft(start or State())
    for event in events:
        if event.seq > work.head:
            _add(work, event)
    return work.state()


def _add(work: StateDraft, event: Event) -> None:
    work.head = event.seq
    if understood(event):
        if (step := STEPS.get(event.kind)) is not None:
            payload = typed(event)
            if payload is not None or event.kind in UNREADABLE:
                step(work, event, payload)
    elif work.too_new is None and event.kind.partition(".")[0] in CORE_NAMESPACES:
        work.too_new = event.seq
    if event.run is not None and work.run is not None and event.run == work.run.id:
        work.driven = event.at
    for id, shown in work.contexts.items():
        if shown.on == event.kind and not shown.active:
            work.contexts[id] = replace(shown, active=True)
