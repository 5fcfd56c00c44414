"""A disk that is full: what cannot be written is refused with an error that says that the same
call may be sent again, nothing is half written, and once there is room everything works."""

from __future__ import annotations

import random
from pathlib import Path

from ..children import Child
from ..outcome import Outcome, Tick, quiet


def full_disks(
    kind: str, folder: Path, *, disks: int, operations: int, tick: Tick = quiet
) -> Outcome:
    """`disks` stores, each changed `operations` times within random limits."""
    outcome = Outcome()
    for number in range(disks):
        tick(number, disks)
        place = folder / f"disk {number}"
        place.mkdir()
        seed = str(random.random())
        with Child("limited", kind, str(place), seed, str(operations)) as child:
            report = child.hear()
            child.finish()
        outcome.counts.update(report["counts"])
        outcome.problems += [f"seed {seed}: {problem}" for problem in report["problems"]]
    outcome.expect(outcome.counts["refused"], "no write was refused")
    return outcome
