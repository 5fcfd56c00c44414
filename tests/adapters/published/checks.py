"""All published tests of one SDK on one kind of store, as a check."""

from __future__ import annotations

from pathlib import Path

from ...crash.outcome import Outcome, Tick
from ..conftest import URLS
from .runs import SUITES, run

KINDS = (*URLS, "vault")


def published(kind: str, folder: Path, *, project: str, sample: bool, tick: Tick) -> Outcome:
    """Run the tests of a project; each that fails is a problem."""
    url = URLS["sqlite" if kind == "vault" else kind](folder)
    report = run(SUITES[project], {kind: url}, folder / "suite", sample=sample)
    outcome = Outcome(problems=report.failed)
    outcome.counts.update(passed=report.passed, skipped=report.skipped)
    return outcome
