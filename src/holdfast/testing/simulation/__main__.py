"""The command `scripts/simulate`, which runs many simulations."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from .runner import SimulationReport, run, smallest
from .scenario import Level, draw
from .simulation import simulate
from .story import story

CHUNK = 50  # simulations that a worker process runs before it reports


def main() -> int:
    """Run the simulations and print the totals. Return 1 if any simulation failed, otherwise 0."""
    options = _options()
    if options.story:
        outcome = simulate(draw(str(options.seed), options.level))
        print(story(outcome))
        return 1 if outcome.problems else 0
    report = SimulationReport()
    for part in _parts(options):
        _merge(report, part)
        if not options.json:
            failed = len(report.failures)
            print(f"\r{report.schedules:,} simulations, {failed} failed", end="", file=sys.stderr)
        if report.failures and not options.keep_going:
            break
    summary = report.summary()
    if options.json:
        print(json.dumps(summary))
    else:
        _print(summary)
        for failure in report.failures[:1]:
            print(f"\nSeed {failure.seed} ({failure.level}), shrunk:\n", flush=True)
            print(story(smallest(failure.seed, failure.level)))
    return 1 if report.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Simulate a cluster with scenarios drawn from seeds, and check the outcomes.",
    )
    parser.add_argument("--seed", type=int, help="the first seed; default: from the clock")
    parser.add_argument(
        "--schedules", type=int, default=1000, help="number of simulations; default: 1,000"
    )
    parser.add_argument("--hours", type=float, help="stop after this many hours")
    parser.add_argument(
        "--level", choices=("plain", "full"), default="full", help="which actions users perform"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes to use; default: 1")
    parser.add_argument("--story", action="store_true", help="print the timeline of one seed")
    parser.add_argument("--keep-going", action="store_true", help="continue after a failure")
    parser.add_argument("--json", action="store_true", help="print totals as JSON")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = time.time_ns() // 1_000_000 % 1_000_000_000
    return options


def _parts(options: argparse.Namespace) -> Iterator[SimulationReport]:
    """Yield one report for each chunk of seeds."""
    end = None if options.hours is None else time.monotonic() + 3600 * options.hours
    last = options.seed + options.schedules
    chunks = [
        (range(first, min(first + CHUNK, last)), options.level)
        for first in range(options.seed, last, CHUNK)
    ]
    # The chunks run in `jobs` worker processes.
    context = get_context("fork" if os.name == "posix" else "spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=None) as pool:
        for part in pool.map(_chunk, chunks):
            yield part
            if end is not None and time.monotonic() > end:
                pool.shutdown(cancel_futures=True)
                return


def _chunk(about: tuple[range, Level]) -> SimulationReport:
    seeds, level = about
    return run(map(str, seeds), level)


def _merge(total: SimulationReport, part: SimulationReport) -> None:
    total.schedules += part.schedules
    total.seconds += part.seconds
    total.virtual += part.virtual
    total.calls += part.calls
    for name in ("processes", "events", "struck", "failures"):
        getattr(total, name).extend(getattr(part, name))
    total.faults.update(part.faults)
    total.checks.update(part.checks)


def _print(summary: dict[str, object]) -> None:
    print(file=sys.stderr)
    for name, value in summary.items():
        if isinstance(value, dict):
            text = ", ".join(f"{key} {count:,}" for key, count in value.items())
        else:
            text = str(value)
        if not isinstance(value, list):
            print(f"{name.replace('_', ' '):20} {text}")


if __name__ == "__main__":
    sys.exit(main())
