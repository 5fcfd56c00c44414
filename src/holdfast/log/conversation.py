"""The conversation of a log with rewinds: which of its events still count. Pure.

An event extends the conversation. A rewind to event n resets it to the conversation right after
event n, which may itself have been removed by an earlier rewind.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import events as ev
from .codec import typed
from .events import Event

REWOUND = "thread.rewound"


def rewound_to(event: Event) -> int | None:
    """Return the number of the event after which the conversation continues, if `event` is a rewind
    that this version can read; None otherwise."""
    if event.kind != REWOUND:
        return None
    payload = typed(event)
    if not isinstance(payload, ev.ThreadRewound):
        return None
    return max(0, min(payload.to, event.seq - 1))


def conversation(events: Iterable[Event]) -> list[Event]:
    """Return the events that belong to the conversation, in order. A rewind removes the events
    between the event that it names and itself. The rewind itself stays in the list if no later
    rewind removes it.

    If the events are only a range of a log, returns the part of the conversation in that range.
    """
    listed = events if isinstance(events, list) else list(events)
    if not any(event.kind == REWOUND for event in listed):
        return listed
    found: list[Event] = []
    last: int | None = None
    for event in reversed(listed):
        if last is None or event.seq <= last:
            found.append(event)
            to = rewound_to(event)
            last = last if to is None else to
    found.reverse()
    return found
