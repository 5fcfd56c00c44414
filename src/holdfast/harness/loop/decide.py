"""Decides the next step from the state. Pure: no clock, no I/O, no memory.

The same log leads to the same decision in every process, at any time, even after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UnsetType

from ...log.events import ids
from ...log.state import OpenCall, OpenItem, Run, State
from ...values.options import STEPS
from ...values.watch import Rest, rest
from ..agents.limits import RunBounds
from .steps import (
    AskOutcome,
    AskProbe,
    CallModel,
    Compact,
    Conclude,
    Expire,
    Finish,
    Fire,
    Idle,
    Refuse,
    Report,
    RunTools,
    SetDue,
    Start,
    Step,
    Supersede,
    Tick,
    Wait,
    Warn,
)

WARNING = 0.8  # fraction of an item's time after which a warning is written
SETTLED = ("denied", "answered", "expired", "superseded", "abandoned")
ANSWERS = ("approved", "denied", "answered")


def decide(state: State, bounds: RunBounds, now: int) -> Step:
    """Return the next step of a log at `now` (ms)."""
    if (step := _by_the_clock(state, now)) is not None:
        return step
    if (run := state.active) is None:
        return _idle(state, bounds)
    return _running(state, run, bounds, now)


def _by_the_clock(state: State, now: int) -> Step | None:
    if not (state.pending or state.timers or state.schedules):
        return None
    items = state.pending.items()
    if late := tuple(id for id, item in items if item.expires and item.expires <= now):
        return Expire(late)
    if soon := tuple(id for id, item in items if (at := _warning(item)) and at <= now):
        return Warn(soon)
    if rung := tuple(id for id, timer in state.timers.items() if timer.at <= now):
        return Fire(rung)
    if ticking := tuple(name for name, at in state.ticking.items() if at <= now):
        return Tick(ticking)
    return None


def _idle(state: State, bounds: RunBounds) -> Step:
    if state.owes and (state.run is not None or (state.due is not None and not state.queue)):
        return Report()
    if state.queue:
        if bounds.budget is None and (asked := tuple(filter(ids.is_budget, state.pending))):
            return Supersede(asked)  # the budget was extended by an answer in another session
        apart = bounds.budget is not None or _full(state, bounds, more=1)
        return Start(state.queue[0].seq, apart)
    due = next_due(state)
    return Idle() if due == state.due else SetDue(due)


def _running(state: State, run: Run, bounds: RunBounds, now: int) -> Step:
    if (excess := state.excess) is not None:
        return Refuse(excess.seq, excess.left)  # first: no other step handles these calls
    if (end := _ending(state, run, bounds, now)) is not None:
        return end
    if (step := _open_calls(state)) is not None:
        return step
    steering = tuple(q.seq for q in state.queue if q.how == "steer")
    if run.answered and not steering:
        return Finish("done")
    if (code := _spent(run, bounds)) is not None:
        return Finish("failed", code)
    if bounds.budget == "call" or (bounds.budget == "run" and not run.steps):
        return Finish("failed", "limit_budget")
    if _full(state, bounds):
        return Compact()
    return CallModel(run.steps + 1, steering)


def _full(state: State, bounds: RunBounds, more: int = 0) -> bool:
    """Return whether the prompt would exceed its limits after `more` further turns."""
    window = state.window
    return window.tokens > bounds.tokens or window.turns + more > bounds.turns


def _ending(state: State, run: Run, bounds: RunBounds, now: int) -> Finish | None:
    if state.abort is not None:
        by_message = any(q.seq == state.abort for q in state.queue)
        return Finish("interrupted", "interrupted") if by_message else Finish("aborted", "aborted")
    if run.crashes > bounds.crashes:
        return Finish("failed", "crash_loop")
    if run.crashes and bounds.recovery == "close":
        return Finish("interrupted", "driver_lost")
    if (until := deadline(run, bounds)) is not None and until <= now:
        return Finish("failed", "limit_time")
    return None


def _open_calls(state: State) -> Step | None:
    """Return the most urgent step for the open calls of the last message."""
    # A nested call is handled together with its parent, as long as that one is open.
    calls = {id: call for id, call in state.calls.items() if call.parent not in state.calls}
    if lost := {id: call for id, call in calls.items() if call.status == "started"}:
        return _begun(lost)
    ready = tuple(id for id, call in calls.items() if _ready(call))
    settled = (id for id, call in calls.items() if call.status in SETTLED or call.parent)
    if over := tuple(id for id in settled if id not in ready):
        return Conclude(over)
    if ready:
        return RunTools(ready)
    return _asking(state) if calls else None


def _begun(calls: Mapping[str, OpenCall]) -> Step:
    """Return the step for calls that were started before a crash and whose outcome is unknown."""
    outer = {id: call for id, call in calls.items() if not call.parent}
    if due := tuple(id for id, call in outer.items() if call.probe == "due"):
        return AskProbe(due)
    if again := tuple(id for id, call in outer.items() if may_start_again(call)):
        return RunTools(again)
    if told := tuple(id for id, call in calls.items() if call.tell or call.parent):
        return Conclude(told)
    return AskOutcome(tuple(calls))


def may_start_again(call: OpenCall) -> bool:
    """Return whether a started call whose outcome is lost may be made again without asking."""
    return call.probe == "not_happened" or (call.repeat and call.probe != "due")


def _asking(state: State) -> Step:
    """Return the step that waits for user input or for sub-agents, or that closes questions because
    a steering message superseded them."""
    asked = (id for id, item in state.pending.items() if item.call in state.calls)
    instead = tuple(
        id for id in asked if not ids.is_child(id)
    )  # a working sub-agent is not superseded
    if instead and any(q.how == "steer" and not q.report for q in state.queue):
        return Supersede(instead)
    due = next_due(state)
    if state.run is None or state.run.status != "waiting":
        return Wait(due)
    return Idle() if due == state.due else SetDue(due)


def _ready(call: OpenCall) -> bool:
    """Return whether a call can be carried out: it was approved, needs no approval, or its question
    was answered."""
    if call.parent is not None:
        return False
    return call.status in (ANSWERS if call.parked else ("proposed", "approved"))


def _spent(run: Run, bounds: RunBounds) -> str | None:
    limits = bounds.limits
    steps = STEPS if isinstance(limits.steps, UnsetType) else limits.steps
    for code, used, most in (
        ("limit_steps", run.steps, run.limits.get("steps", steps)),
        ("limit_tokens", run.tokens, run.limits.get("tokens", limits.tokens)),
        ("limit_cost", run.cost, run.limits.get("cost", limits.cost)),
    ):
        if most is not None and used >= most:
            return code
    return None


def deadline(run: Run, bounds: RunBounds) -> int | None:
    """Return the time (ms) at which a run reaches its time limit if it is driven without
    interruption. None if it has no time limit or is not running."""
    seconds = run.limits.get("seconds", bounds.limits.seconds)
    if seconds is None or run.status != "running":
        return None
    return run.since + int(seconds * 1000) - run.spent


def next_due(state: State) -> int | None:
    """Return the next time (ms) at which a timer, a schedule, a warning or an expiry is
    due, or None."""
    times = [] if state.alarm is None else [state.alarm]
    for item in state.pending.values():
        times.extend(at for at in (_warning(item), item.expires) if at is not None)
    return min(times, default=None)


def rest_of(state: State, bounds: RunBounds, now: int) -> Rest | None:
    """Return `finished` or `waiting` if neither a driver nor a sub-agent has work to do in this
    log, otherwise None; see `rest`."""
    return rest(state, idle=isinstance(decide(state, bounds, now), (Idle, SetDue)))


def _warning(item: OpenItem) -> int | None:
    if item.expires is None or item.warned:
        return None
    return item.at + int((item.expires - item.at) * WARNING)
