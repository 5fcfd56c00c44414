"""Which branches of the run loop, the drivers and the leases simulated clusters reach.

    .venv-test-3.13/bin/python -m pip install coverage
    .venv-test-3.13/bin/python -m tests.simulation.coverage --schedules 400

It needs Python 3.12 or later: before, cancelled coroutines confuse the tracer of coverage.py.

Nothing else runs: what is covered is covered by seeds alone. `--seed` is the first of them.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT / "src/holdfast/harness"
LOOP = ("decide", "perform", "run_loop", "run_start", "lease", "driver", "tool_call", "model_call")
FILES = (
    *(HARNESS / f"loop/{name}.py" for name in LOOP),
    *(HARNESS / f"workers/{n}.py" for n in ("drivers", "recovery")),
)


def measure(first: int, schedules: int) -> dict[Path, dict[str, Any]]:
    """The report of coverage.py about each file, after this many schedules of all levels."""
    if not hasattr(sys, "monitoring"):
        sys.exit("use Python 3.12 or later: before, cancelled coroutines confuse the tracer")
    try:
        coverage = importlib.import_module("coverage")
    except ModuleNotFoundError:
        sys.exit("coverage.py is not installed: run `python -m pip install coverage`")
    with tempfile.TemporaryDirectory() as folder:
        files = [str(path) for path in FILES]
        made = coverage.Coverage(branch=True, include=files, data_file=None)
        made.exclude(r'raise AssertionError\("unreachable"\)')
        made.start()
        # Imported now, so that what runs at import counts too.
        simulation = importlib.import_module("holdfast.testing.simulation")
        importlib.import_module("tests.simulation.mutations")
        for number in range(first, first + schedules):
            scenario, level = _schedule(number)
            if problems := simulation.simulate(scenario).problems:
                print(f"{level} {number}: {problems}")
            if number % 20 == 19:
                gc.collect()
        made.stop()
        target = Path(folder) / "coverage.json"
        made.json_report(outfile=str(target))
        found = json.loads(target.read_bytes())["files"]
    return {Path(name).resolve(): report for name, report in found.items()}


def _schedule(number: int) -> tuple[Any, str]:
    """The schedule with this number: every second one is directed, some of the others are rare."""
    directed = importlib.import_module("tests.simulation.directed")
    simulation = importlib.import_module("holdfast.testing.simulation")
    if number % 2:
        change = directed.DIRECTED[number // 2 % len(directed.DIRECTED)]
    elif number % 40 == 38:
        change = directed.rare
    else:
        drawn: tuple[Any, str] = importlib.import_module("tests.simulation.mutations").schedule(
            number
        )
        return drawn
    return change(simulation.draw(str(number), "full")), change.__name__


def rows(reports: dict[Path, dict[str, Any]], detail: bool) -> Iterator[str]:
    """A line for each file and one for all: branches that were taken, of how many."""
    taken = known = 0
    for path in FILES:
        report = reports[path.resolve()]
        summary = report["summary"]
        taken += summary["covered_branches"]
        known += summary["num_branches"]
        yield _row(path.stem, summary["covered_branches"], summary["num_branches"])
        if detail:
            yield from (f"    {a} -> {b}" for a, b in report["missing_branches"])
    yield _row("all", taken, known)


def _row(name: str, taken: int, known: int) -> str:
    share = 100 * taken / known if known else 100.0
    return f"{name:<12} {taken:>4} of {known:>4} branches  {share:5.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--schedules", type=int, default=400, help="how many; default: 400")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--missing", action="store_true", help="list the branches not taken")
    given = parser.parse_args()
    reports = measure(given.seed, given.schedules)
    print("\n".join(rows(reports, given.missing)))


if __name__ == "__main__":
    main()
