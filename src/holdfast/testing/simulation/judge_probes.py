"""The judge of probes: a call of a tool with a probe is repeated only if its probe says that it did
not happen, and put to a person only if its probe does not know. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ...log import events as ev
from ...log.events import Event
from .outcome import SimulationOutcome

TAKEN_UP = ("run.started", "run.resumed")  # after these, a started call counts as lost


class _Call(Struct):
    """A call of a tool with a probe, since its latest start."""

    started: int
    repeat: bool
    answer: str | None = None
    approved: bool = False


def probed(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that a call with a probe is neither repeated nor asked about without need, that probes
    are asked only after a driver was lost, and that a call that happened ends right then."""
    for key, log in outcome.whole.items():
        for problem in _problems(log):
            yield f"{key.session}/{key.thread}: {problem}"


def _problems(log: list[tuple[Event, Any]]) -> Iterator[str]:
    calls: dict[str, _Call] = {}
    taken = 0  # the latest start or resumption of a run
    for number, (event, p) in enumerate(log):
        if event.kind in TAKEN_UP:
            taken = event.seq
        elif isinstance(p, ev.ToolStarted) and p.probe:
            if (known := calls.get(p.call)) is not None and not _repeatable(known):
                yield f"{p.name} {p.call} was repeated although its probe said {known.answer}"
            calls[p.call] = _Call(event.seq, p.repeat)
        elif isinstance(p, ev.ToolFinished):
            calls.pop(p.call, None)
        elif isinstance(p, ev.ToolProbed):
            yield from _answered(p, calls.get(p.call), taken, log[number + 1 : number + 2])
        elif isinstance(p, ev.PendingOpened | ev.PendingSettled) and "@" in p.id:
            call = calls.get(p.id.rpartition("@")[0])
            if call is not None and isinstance(p, ev.PendingSettled):
                call.approved = p.outcome == "approved"
            elif call is not None and call.answer != "unknown":
                yield f"{p.id} asks a person although the probe said {call.answer}"


def _repeatable(call: _Call) -> bool:
    unknown = call.answer == "unknown" and (call.repeat or call.approved)
    return call.answer == "not_happened" or unknown


def _answered(
    p: ev.ToolProbed, call: _Call | None, taken: int, following: list[tuple[Event, Any]]
) -> Iterator[str]:
    """Yield what is wrong with an answer of a probe, and keep it."""
    if call is None or call.started > taken:
        yield f"{p.call} was probed although it was not lost"
        return
    if call.answer is not None:
        yield f"{p.call} was probed again although its probe said {call.answer}"
    call.answer = p.outcome
    after = following[0][1] if following else None
    if p.outcome == "happened" and not (
        isinstance(after, ev.ToolFinished) and after.call == p.call
    ):
        yield f"{p.call} happened, but did not end"
