"""Simulated clusters as a check of `scripts/soak`: fresh seeds, judged."""

from __future__ import annotations

import time
from pathlib import Path

from holdfast.testing.simulation import run
from holdfast.testing.simulation.runner import SimulationReport
from holdfast.testing.simulation.scenario import Level

from ..crash.outcome import Outcome, Tick


def simulated(level: Level, folder: Path, tick: Tick, *, schedules: int) -> Outcome:
    """Play this many schedules from a fresh seed on; a failure is reported with its seed."""
    outcome = Outcome()
    first = time.time_ns() // 1_000_000 % 1_000_000_000

    def progress(report: SimulationReport) -> bool:
        if report.schedules % 50 == 0:
            tick(report.schedules, schedules)
        return False

    report = run(map(str, range(first, first + schedules)), level, stop=progress)
    outcome.counts.update(schedules=report.schedules, events=sum(report.events))
    outcome.counts.update({f"fault {name}": count for name, count in report.faults.items()})
    outcome.counts.update({f"judge {name}": count for name, count in report.checks.items()})
    for failure in report.failures:
        outcome.problems.extend(f"seed {failure.seed}: {what}" for what in failure.problems)
    return outcome
