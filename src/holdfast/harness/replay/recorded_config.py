"""The recorded configuration for the next decision: its time, driver, model and limits. Pure.

With this configuration, a driver makes the same decision as in the recording.
"""

from __future__ import annotations

import itertools
from typing import Any, Literal

import msgspec

from ...log import events as ev
from ...values.options import RunLimits
from ..agents.limits import RunBounds
from .track import Track

NEVER = 1 << 62


def clock(track: Track) -> int:
    """Return the time at which the next step was decided. This is the time of the previous event,
    since the next event may have been written much later. If a timer caused the step, it is the
    time of the event of the step."""
    coming = track.following()
    before = track.events[track.at - 1].at if track.at else track.events[0].at
    if coming is None or not (track.late or _by_the_clock(coming[1])):
        return before
    if isinstance(coming[1], ev.PendingWarned):
        return max(before, min(coming[0].at, _next_expiry(track) - 1))
    return coming[0].at


def _next_expiry(track: Track) -> int:
    """Return the earliest time at which a pending item expires."""
    open: dict[str, int] = {}
    for payload in track.payloads[: track.at]:
        if isinstance(payload, (ev.PendingOpened, ev.PendingExtended)):
            open[payload.id] = payload.expires or NEVER
        elif isinstance(payload, ev.PendingSettled):
            open.pop(payload.id, None)
    return min(open.values(), default=NEVER)


def ends_with(track: Track, code: str) -> bool:
    """Return whether the current run ends with this code before it takes another step."""
    for event, payload in track.ahead():
        if isinstance(payload, ev.RunFinished):
            return payload.code == code
        if event.kind not in ("message.interrupted", "tool.finished", "pending.settled"):
            return False
    return False


def breaks(track: Track) -> Literal["lost", "left"] | None:
    """Return how the driver stopped at this position: `lost` if its process crashed, `left` if it
    handed the run over, None if it did not stop.

    The result is derived from the next events only, because text may be redacted. A `run.waiting`
    event without `reason` is not a handover: its run waits for a user, and its due time may have
    passed before it was written.
    """
    ahead = track.ahead()
    event, payload = next(ahead, (None, None))
    if isinstance(payload, ev.MessageInterrupted) and not payload.shown:
        event, payload = next(ahead, (None, None))
    if isinstance(payload, ev.RunResumed):
        return None if track.waiting else "lost"
    if event is not None and isinstance(payload, ev.RunWaiting):
        if payload.reason is None or payload.due is None:
            return None
        return "left" if payload.due <= event.at + 1 else None
    return None


def driver(track: Track) -> str:
    """Return the name of the recorded driver. The driver must have this name, because a grant for
    one driver does not apply to later drivers."""
    coming = track.following()
    payload = coming[1] if coming is not None else None
    if isinstance(payload, (ev.RunStarted, ev.RunResumed)) and payload.driver:
        track.owner = payload.driver
    return track.owner


def model(track: Track) -> str | None:
    """Return the reference of the next model that is called, if known."""
    found = (p.model for _, p in track.ahead() if isinstance(p, ev.ModelCalled))
    return next((ref for ref in found if "/" in ref), None)


def models(track: Track) -> list[str]:
    """Return the references of all models that have answered."""
    found = (message.model for message in track.every(ev.MessageCompleted))
    return list(dict.fromkeys(ref for ref in found if ref and "/" in ref))


def bounds(track: Track) -> RunBounds:
    """Return limits with which a driver makes the recorded decision: only the limit that was
    reached in the recording is set."""
    nothing = RunLimits(steps=None)
    open = RunBounds(limits=nothing, tokens=NEVER, turns=NEVER, crashes=NEVER)
    coming = [payload for _, payload in itertools.islice(track.ahead(), 2)]
    if not coming:
        return open
    if isinstance(coming[0], ev.RunStarted):
        full = len(coming) > 1 and not isinstance(coming[1], ev.ModelCalled)
        return msgspec.structs.replace(open, turns=0) if full else open
    code = coming[0].code if isinstance(coming[0], ev.RunFinished) else None
    if track.late and ends_with(track, "limit_time"):
        code = "limit_time"
    return _bounds(open, code)


def _bounds(open: RunBounds, code: str | None) -> RunBounds:
    met = {
        "limit_steps": RunLimits(steps=0),
        "limit_tokens": RunLimits(steps=None, tokens=0),
        "limit_cost": RunLimits(steps=None, cost=0.0),
        "limit_time": RunLimits(steps=None, seconds=0.0),
    }
    if code in met:
        return msgspec.structs.replace(open, limits=met[code])
    if code == "crash_loop":
        return msgspec.structs.replace(open, crashes=0)
    if code == "driver_lost":
        return msgspec.structs.replace(open, recovery="close")
    return open


def _by_the_clock(payload: Any) -> bool:
    """Return whether a driver wrote this event because a time was reached."""
    if isinstance(payload, ev.PendingSettled):
        return payload.outcome == "expired"
    # A message from a driver is always caused by a timer.
    return isinstance(
        payload, (ev.PendingWarned, ev.TimerFired, ev.TimerTicked, ev.MessageReceived)
    )
