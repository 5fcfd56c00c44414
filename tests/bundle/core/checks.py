"""What a large bundle may take, as a promise that is checked with any size."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.crash.outcome import Outcome, Tick, quiet

from .large import run


def large(folder: Path, *, megabytes: int, limit: float, tick: Tick = quiet) -> Outcome:
    """A session of so many megabytes goes into an archive, into another store and into an archive
    again; both are the same, and neither way takes more than `limit` megabytes of memory."""
    outcome = Outcome()
    here, there = f"sqlite:{folder}/here.db", f"sqlite:{folder}/there.db"
    first, second = folder / "first.zip", folder / "second.zip"
    steps = [
        ("make", here, str(megabytes)),
        ("export", here, str(first)),
        ("import", there, str(first)),
        ("export", there, str(second)),
    ]
    for n, step in enumerate(steps):
        told = run(*step)
        tick(n + 1, len(steps))
        if step[0] == "make":
            outcome.counts["events"] = int(str(told["events"]))
            continue
        peak = float(str(told["peak"]))
        outcome.counts[f"MB of memory to {step[0]}"] = round(peak)
        outcome.expect(peak < limit, f"{step[0]} took {peak:.0f} MB, above {limit:.0f}")
    outcome.counts["MB of archive"] = first.stat().st_size >> 20
    outcome.equal(_hash(second), _hash(first), "the archive made of the import")
    return outcome


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
