"""An earlier commit as a contestant: the same workload in a process of its own that imports
Holdfast from a checkout of that commit (`--before FOLDER`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .measure import FAILED

BEFORE = "Holdfast before"
ROOT = Path(__file__).resolve().parent.parent


def before(checkout: Path, work: str, *given: str | int) -> float:
    """The value of a run in a child process. `work` is a key of `_works`."""
    paths = [str(checkout / "src"), str(ROOT)]
    child = subprocess.run(
        [sys.executable, "-m", "bench.before", work, json.dumps(given)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode:
        told = child.stderr.strip().splitlines() or [FAILED]
        raise RuntimeError(told[-1])
    return float(child.stdout)


def _turns(folder: str, sessions: int, turns: int) -> float:
    from .turns import ours

    return ours("sqlite")(Path(folder), sessions, turns)


def _harness_turn(storage: str, turns: int, calls: int) -> float:
    from .harness import a_turn

    return a_turn(storage, turns, calls)


_works = {"turns": _turns, "harness-turn": _harness_turn}


if __name__ == "__main__":
    print(_works[sys.argv[1]](*json.loads(sys.argv[2])))
