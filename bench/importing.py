"""What `import holdfast` costs above what it stands on, and `holdfast --help` in all."""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import partial

from .measure import Bar, Figure, Result, race
from .settings import Settings

BASE = "import asyncio, msgspec"
OURS = "import asyncio, msgspec, holdfast"


def milliseconds(statement: str) -> float:
    """How long a statement takes in a fresh interpreter, its start left out."""
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(child.stdout) * 1e3


def cpu_seconds(option: str) -> float:
    """The processor time of the command line with one option, the interpreter's start included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "holdfast", option]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def importing(settings: Settings) -> Result:
    """The difference of two imports, each in processes of its own, in turn."""
    result = Result(name="import", title="import holdfast")
    runs = {name: partial(milliseconds, name) for name in (BASE, OURS)}
    values, absent = race(runs, rounds=max(settings.rounds, 3), step=settings.step)
    for name in runs:
        result.figures.append(
            Figure(name=name, unit="ms", values=values.get(name, []), absent=absent.get(name, ""))
        )
    over = [] if absent else [b - a for a, b in zip(values[BASE], values[OURS], strict=True)]
    result.bars.append(
        Bar(name="import holdfast, above its base", way="most", bar=30.0, values=over, unit="ms")
    )
    for option in ("--help", "--version"):
        spent = [cpu_seconds(option) * 1e3 for _ in range(max(settings.rounds, 3))]
        name = f"holdfast {option}, processor time"
        result.bars.append(Bar(name=name, way="most", bar=150.0, values=spent, unit="ms"))
    return result
