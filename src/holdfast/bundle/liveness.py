"""Whether a session can go on, told by its log alone. Pure.

A log is **closed** when its session expired and nothing has happened in it since but bookkeeping,
or when it is a sub-agent's that has reported and in which nothing is open. A prefix that was cut
before that is continuable, and so is a log in which something happened afterwards. A bundle is
closed when its thread `main` is; one without `main`, when all of its threads are.

A log is **quiet** when nothing in it waits, runs, is queued or is due: two copies of it may go on
side by side without anything being done or answered twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..log.catalog.projection import QUIET
from ..log.events import Event
from ..log.state import State
from ..values.records import Liveness


def closes(event: Event, closed: bool) -> bool:
    """Whether a log is at its session's end after `event`, if before it was `closed` or not."""
    return event.kind == "session.expired" or (closed and event.kind in QUIET)


def is_closed(state: State, closed: bool) -> bool:
    """Whether a log is closed, given its fold and what `closes` said of its last event."""
    reported = state.sub is not None and state.sub.reported and is_quiet(state)
    return closed or reported


def is_quiet(state: State) -> bool:
    """Whether nothing is open in a log."""
    return state.safe and not state.queue and not state.timers and not state.owes


def liveness(closed: Mapping[str, bool]) -> Liveness:
    """Of a bundle, by what its threads are."""
    over = closed["main"] if "main" in closed else all(closed.values())
    return "closed" if over and closed else "continuable"
