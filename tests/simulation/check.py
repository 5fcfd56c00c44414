"""Simulated clusters as checks of `scripts/soak`: fresh seeds, judged."""

from __future__ import annotations

import time
from pathlib import Path

from holdfast.testing.simulation import draw, run, simulate
from holdfast.testing.simulation.runner import SimulationReport
from holdfast.testing.simulation.scenario import Level

from ..crash.outcome import Outcome, Tick
from .directed import DIRECTED


def simulated(level: Level, folder: Path, tick: Tick, *, schedules: int) -> Outcome:
    """Play this many schedules from a fresh seed on; a failure is reported with its seed."""
    first = _fresh()

    def progress(report: SimulationReport) -> bool:
        if report.schedules % 50 == 0:
            tick(report.schedules, schedules)
        return False

    return _outcome(run(map(str, range(first, first + schedules)), level, stop=progress))


def directed(folder: Path, tick: Tick, *, schedules: int) -> Outcome:
    """The same with directed schedules, of each kind in turn."""
    report, first = SimulationReport(), _fresh()
    for number in range(first, first + schedules):
        change = DIRECTED[number % len(DIRECTED)]
        report.add(simulate(change(draw(str(number), "full"))), "full")
        tick(report.schedules, schedules)
    return _outcome(report)


def _fresh() -> int:
    return time.time_ns() // 1_000_000 % 1_000_000_000


def _outcome(report: SimulationReport) -> Outcome:
    outcome = Outcome()
    outcome.counts.update(schedules=report.schedules, events=sum(report.events))
    outcome.counts.update({f"fault {name}": count for name, count in report.faults.items()})
    outcome.counts.update({f"judge {name}": count for name, count in report.checks.items()})
    for failure in report.failures:
        outcome.problems.extend(f"seed {failure.seed}: {what}" for what in failure.problems)
    return outcome
