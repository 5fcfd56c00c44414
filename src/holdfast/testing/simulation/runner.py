"""Runs many simulations, collects totals, and reports each failure with its seed."""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from .outcome import SimulationOutcome
from .scenario import Level, Scenario, draw
from .shrink import shrink
from .simulation import simulate

COLLECT = 25  # simulations between two collections of garbage


class FailedSeed(Struct, frozen=True):
    """A seed whose simulation failed, and the problems that were found."""

    seed: str
    level: Level
    problems: list[str]


class SimulationReport(Struct):
    """Totals over many simulations."""

    schedules: int = 0
    seconds: float = 0.0  # of processor time
    virtual: float = 0.0  # seconds of virtual time
    calls: int = 0  # of the store
    processes: list[int] = []
    events: list[int] = []
    struck: list[int] = []
    faults: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    failures: list[FailedSeed] = []

    def add(self, outcome: SimulationOutcome, level: Level) -> None:
        self.schedules += 1
        self.virtual += outcome.seconds
        self.calls += outcome.calls
        self.processes.append(outcome.scenario.processes)
        self.events.append(outcome.events)
        self.struck.append(sum(outcome.faults.values()))
        self.faults.update(outcome.faults)
        self.checks.update(outcome.checks)
        if outcome.problems:
            self.failures.append(FailedSeed(outcome.scenario.seed, level, outcome.problems))

    def summary(self) -> dict[str, object]:
        """Return the totals as plain values, with medians."""
        per_hour = 3600 * self.schedules / self.seconds if self.seconds else 0.0
        return {
            "schedules": self.schedules,
            "failed": len(self.failures),
            "schedules_per_hour": round(per_hour),
            "median_processes": statistics.median(self.processes or [0]),
            "median_events": statistics.median(self.events or [0]),
            "median_faults": statistics.median(self.struck or [0]),
            "virtual_hours": round(self.virtual / 3600, 1),
            "store_calls": self.calls,
            "faults": dict(self.faults.most_common()),
            "checks": dict(self.checks.most_common()),
            "failures": [
                {"seed": f.seed, "level": f.level, "problems": f.problems} for f in self.failures
            ],
        }


def run(
    seeds: Iterable[str],
    level: Level = "plain",
    *,
    stop: Callable[[SimulationReport], bool] = lambda report: False,
) -> SimulationReport:
    """Simulate the scenario of each seed, until `stop(report)` returns True."""
    report = SimulationReport()
    gc.collect()
    gc.freeze()  # later collections need not scan the objects that exist now
    try:
        for seed in seeds:
            begun = time.process_time()
            report.add(simulate(draw(seed, level)), level)
            if report.schedules % COLLECT == 0:
                gc.collect()
            report.seconds += time.process_time() - begun
            if stop(report):
                break
    finally:
        gc.unfreeze()
    return report


def smallest(seed: str, level: Level = "plain") -> SimulationOutcome:
    """Return the outcome of the smallest scenario found that fails like this seed: at least one of
    the same judges reports a problem."""
    first = simulate(draw(seed, level))
    judges = _judges(first)

    def fails(scenario: Scenario) -> bool:
        return bool(judges & _judges(simulate(scenario)))

    return simulate(shrink(first.scenario, fails)) if judges else first


def _judges(outcome: SimulationOutcome) -> set[str]:
    return {problem.partition(":")[0] for problem in outcome.problems}
