"""Determines from its log whether a session can be continued. Pure.

A log is **closed** if its session expired and only bookkeeping events followed, or if it belongs to
a sub-agent that has reported its result and nothing in it is open. A prefix that ends earlier, or a
log with later events of other kinds, can be continued. A bundle is closed if its thread `main` is
closed, or without `main`, if all of its threads are closed.

A log is **quiet** if nothing in it is pending, running, queued or due: two copies of the log can
continue independently without doing or answering anything twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..log.catalog.projection import QUIET
from ..log.events import Event
from ..log.state import State
from ..values.records import Liveness


def closes(event: Event, closed: bool) -> bool:
    """Return whether a log is closed after `event`, given whether it was `closed` before."""
    return event.kind == "session.expired" or (closed and event.kind in QUIET)


def is_closed(state: State, closed: bool) -> bool:
    """Return whether a log is closed, given its state and the result of `closes` for its last
    event.
    """
    reported = state.sub is not None and state.sub.reported and is_quiet(state)
    return closed or reported


def is_quiet(state: State) -> bool:
    """Return whether nothing in a log is pending, running, queued or due."""
    due = state.timers or state.schedules
    return state.safe and not state.queue and not due and not state.owes


def liveness(closed: Mapping[str, bool]) -> Liveness:
    """Return whether a bundle is `closed` or `continuable`. `closed` says which of its threads are
    closed.
    """
    over = closed["main"] if "main" in closed else all(closed.values())
    return "closed" if over and closed else "continuable"
