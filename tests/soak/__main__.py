"""Run the crash, race and fault checks of the suite with heavy counts, and print what they found.

`python -m tests.soak [--only WORDS] [--quick] [--json] [--list]`; status 1 when a promise is
broken. Times are printed as met or not met and never change the status.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from .. import servers
from ..adapters.published import checks as published
from ..adapters.published.runs import SUITES
from ..bundle.core.checks import large
from ..client import checks as client
from ..crash.checks.clocks import set_back, skewed_races
from ..crash.checks.cuts import cuts, opening_cuts
from ..crash.checks.damage import corruptions, erasing_beside, headers
from ..crash.checks.full import full_disks
from ..crash.checks.indexes import index_removed
from ..crash.checks.kills import kills
from ..crash.checks.removal import long_threads, receipts
from ..crash.checks.rollbacks import rollbacks
from ..crash.checks.survivors import survivors
from ..crash.checks.traces import fsyncs, power_cuts
from ..crash.outcome import Outcome, Tick
from ..crash.places import ENCRYPTED, KINDS, SHARED
from ..crash.scene import OPS
from ..faults_net import checks as faults_net
from ..faults_net.closing import killed_listeners
from ..harness.crash import faults as harness_faults
from ..harness.crash import kills as harness_kills
from ..harness.session.crash import kills as session_kills
from ..harness.session.two import races as session_races
from ..processes import checks as processes
from ..server import openapi
from ..server.stream import checks as streams
from ..sessions import checks as sessions
from ..simulation import places
from ..simulation.check import directed, simulated
from ..simulation.real import real

STORM: dict[str, object] = {"processes": 4, "sessions": 8, "seconds": 60.0, "restarts": 2}
REAL: dict[str, object] = {"seconds": 300.0, "processes": 3, "lanes": 4}
BRIEF: dict[str, object] = {"seconds": 20.0, "processes": 2, "lanes": 2}
SQUALL: dict[str, object] = {"processes": 2, "sessions": 4, "seconds": 3.0, "restarts": 1}


class Check(NamedTuple):
    """A check of one kind of store, with its heavy counts and its small ones."""

    name: str
    heavy: Callable[[Path, Tick], Outcome]
    small: Callable[[Path, Tick], Outcome]


def _checks() -> Iterator[Check]:
    for kind in KINDS:
        yield _counted(kind, "kills", kills, heavy={"count": 200}, small={"count": 6})
        for do in OPS:
            cut = partial(_cut, do=do)
            yield _counted(kind, f"cut {do}", cut, heavy={"count": None}, small={"count": 6})
        yield _counted(kind, "cut opening", opening_cuts, heavy={"count": None}, small={"count": 6})
        yield _counted(kind, "survivors", survivors, heavy={"count": None}, small={"count": 6})
        yield _counted(
            kind,
            "full disk",
            partial(full_disks, operations=60),
            heavy={"disks": 50},
            small={"disks": 2},
        )
        yield _counted(
            kind, "wrong clocks", skewed_races, heavy={"rounds": 1000}, small={"rounds": 50}
        )
        yield _counted(kind, "clock set back", set_back, heavy={"rounds": 50}, small={"rounds": 2})
        for name, check in (("long threads", long_threads), ("receipts", receipts)):
            yield _counted(kind, name, partial(_untold, check), heavy={}, small={})
        yield _counted(kind, "opens", processes.opens, heavy={"rounds": 20}, small={"rounds": 2})
        yield _counted(
            kind, "crowd", processes.crowd, heavy={"seconds": 60.0}, small={"appends": 15}
        )
        yield _counted(kind, "race", processes.race, heavy={"rounds": 1000}, small={"rounds": 50})
        yield _counted(kind, "frozen", processes.frozen, heavy={"rounds": 20}, small={"rounds": 2})
        yield _counted(
            kind, "handover", processes.handover, heavy={"rounds": 2000}, small={"rounds": 50}
        )
        yield _counted(
            kind, "follow", processes.follow, heavy={"appends": 500}, small={"appends": 15}
        )
        if shutil.which("strace"):
            traced = partial(_untold, fsyncs)
            yield _counted(
                kind, "fsyncs", traced, heavy={"operations": 400}, small={"operations": 40}
            )
            powerless = partial(power_cuts, operations=100)
            yield _counted(kind, "power cuts", powerless, heavy={"count": 400}, small={"count": 10})
    for kind in (*KINDS, *SHARED):
        yield _counted(
            kind, "overlap", processes.overlap, heavy={"appends": 2000}, small={"appends": 15}
        )
    for kind in (*KINDS, *SHARED):
        yield from _of_sessions(kind)
    for kind in (*KINDS, *SHARED):
        yield from _of_the_harness(kind)
    for kind in SHARED:
        yield from _on_a_server(kind)
    for kind in SHARED:
        yield from _of_servers(kind)
    for kind in KINDS:
        yield _silent(kind)
    for kind in (*KINDS, *SHARED):
        yield from _encrypted(f"{kind}{ENCRYPTED}", here=kind in KINDS)
    for kind in servers.KINDS:
        yield _counted(kind, "storm", faults_net.storm, heavy=STORM, small=SQUALL)
    yield _counted(
        "postgres",
        "listener killed during close",
        killed_listeners,
        heavy={"rounds": 60},
        small={"rounds": 3},
    )
    yield Check(
        "file corruptions",
        lambda folder, tick: corruptions(folder, count=None, tick=tick),
        lambda folder, tick: corruptions(folder, count=40, tick=tick),
    )
    yield Check(
        "file first lines",
        lambda folder, tick: headers(folder, tick=tick),
        lambda folder, tick: headers(folder, every=10, tick=tick),
    )
    yield Check(
        "file indexes taken back",
        lambda folder, tick: rollbacks(folder, tick=tick),
        lambda folder, tick: rollbacks(folder, every=10, tick=tick),
    )
    yield Check(
        "file index removed",
        lambda folder, tick: index_removed(folder, rounds=200, processes=4, tick=tick),
        lambda folder, tick: index_removed(folder, rounds=8, processes=2, tick=tick),
    )
    yield Check(
        "file erasing beside damage",
        lambda folder, tick: erasing_beside(folder),
        lambda folder, tick: erasing_beside(folder),
    )
    for level in ("plain", "full"):
        yield Check(
            f"simulation {level}",
            partial(simulated, level, schedules=20_000),
            partial(simulated, level, schedules=100),
        )
    yield Check(
        "simulation directed",
        partial(directed, schedules=5_000),
        partial(directed, schedules=20),
    )
    for kind in places.PLACES:
        yield _counted(kind, "real cluster", real, heavy=REAL, small=BRIEF)
    for kind in published.KINDS:
        for project in SUITES:
            yield _counted(
                kind,
                f"published tests of {project}",
                partial(published.published, project=project),
                heavy={"sample": False},
                small={"sample": True},
            )
    yield Check(
        "http document",
        lambda folder, tick: openapi.checked(examples=200, tick=tick),
        lambda folder, tick: openapi.checked(examples=5, tick=tick),
    )
    yield Check(
        "bundle of 200 MB",
        lambda folder, tick: large(folder, megabytes=260, limit=64, tick=tick),
        lambda folder, tick: large(folder, megabytes=16, limit=64, tick=tick),
    )
    yield Check(
        "bundle of a run of 2 GB",
        lambda folder, tick: large(folder, megabytes=2_100, limit=200, tick=tick),
        lambda folder, tick: large(folder, megabytes=16, limit=200, tick=tick),
    )


def _encrypted(kind: str, *, here: bool) -> Iterator[Check]:
    if here:
        yield _counted(kind, "kills", kills, heavy={"count": 200}, small={"count": 6})
    yield from _on_a_server(kind)
    yield _counted(
        kind, "overlap", processes.overlap, heavy={"appends": 1000}, small={"appends": 15}
    )
    yield _counted(
        kind,
        "driver kills",
        harness_kills.kills,
        heavy={"methods": harness_kills.WRITES, "delay": 0.1, "twice": 50},
        small={"count": 6},
    )


def _on_a_server(kind: str) -> Iterator[Check]:
    yield _counted(kind, "opens", processes.opens, heavy={"rounds": 20}, small={"rounds": 2})
    yield _counted(kind, "crowd", processes.crowd, heavy={"seconds": 60.0}, small={"appends": 15})
    yield _counted(kind, "race", processes.race, heavy={"rounds": 1000}, small={"rounds": 50})
    yield _counted(kind, "frozen", processes.frozen, heavy={"rounds": 20}, small={"rounds": 2})
    yield _counted(
        kind, "handover", processes.handover, heavy={"rounds": 2000}, small={"rounds": 50}
    )
    yield _counted(kind, "follow", processes.follow, heavy={"appends": 500}, small={"appends": 15})


def _of_servers(kind: str) -> Iterator[Check]:
    yield _counted(
        kind,
        "streams of two servers",
        client.storm,
        heavy={"sessions": 20, "cuts": 1000, "restarts": 20, "kills": 20},
        small={"sessions": 4, "cuts": 20, "restarts": 1, "kills": 1},
    )
    yield _counted(
        kind,
        "server kills",
        client.takeovers,
        heavy={"rounds": 50, "sessions": 10},
        small={"rounds": 2, "sessions": 3},
    )
    yield _silent(kind)


def _silent(kind: str) -> Check:
    return _counted(
        kind,
        "silent readers",
        streams.silent_readers,
        heavy={"silent": 80, "slow": 20, "events": 40, "kilobytes": 3_000, "kills": 6},
        small={"silent": 6, "slow": 3, "events": 6, "kilobytes": 900, "kills": 1},
    )


def _of_the_harness(kind: str) -> Iterator[Check]:
    writes = {"methods": harness_kills.WRITES, "delay": 0.1}
    yield _counted(
        kind,
        "driver kills",
        harness_kills.kills,
        heavy={**writes, "twice": 200},
        small={"count": 6},
    )
    yield _counted(kind, "session kills", session_kills.kills, heavy={}, small={"count": 6})
    yield _counted(
        kind,
        "session races",
        session_races.races,
        heavy={"rounds": 100, "verbs": 60},
        small={"rounds": 2, "verbs": 20},
    )
    for name, check in (
        ("driver aborts", harness_faults.aborts),
        ("driver store errors", harness_faults.store_errors),
    ):
        yield _counted(kind, name, check, heavy={}, small={"every": 12})
    yield _counted(
        kind,
        "driver other store errors",
        harness_faults.store_errors,
        heavy={"methods": harness_faults.OTHERS, "delay": 0.1},
        small={"methods": ("acquire",), "every": 8},
    )


def _of_sessions(kind: str) -> Iterator[Check]:
    checks: list[tuple[str, sessions.Check, dict[str, object], dict[str, object]]] = [
        (
            "session changes",
            sessions.changes,
            {"attaches": 100, "updates": 100},
            {"attaches": 12, "updates": 12},
        ),
        ("contacts", sessions.contacts, {"rounds": 50, "calls": 50}, {"rounds": 1, "calls": 20}),
        ("sweep against touch", sessions.sweeps, {"rounds": 1000}, {"rounds": 30}),
        ("sweepers", sessions.sweepers, {"sessions": 500}, {"sessions": 20}),
        ("endings", sessions.endings, {"rounds": 500}, {"rounds": 15}),
    ]
    for name, check, heavy, small in checks:
        yield _counted(kind, name, partial(sessions.run, check), heavy=heavy, small=small)


def _counted(
    kind: str,
    name: str,
    check: Callable[..., Outcome],
    *,
    heavy: dict[str, object],
    small: dict[str, object],
) -> Check:
    def run(counts: dict[str, object], folder: Path, tick: Tick) -> Outcome:
        return check(kind, folder, **counts, tick=tick)

    return Check(f"{kind} {name}", partial(run, heavy), partial(run, small))


def _cut(kind: str, folder: Path, *, do: str, count: int | None, tick: Tick) -> Outcome:
    return cuts(kind, folder, do, count=count, tick=tick)


def _untold(check: Callable[..., Outcome], kind: str, folder: Path, **counts: object) -> Outcome:
    counts.pop("tick")  # it is over in one go
    return check(kind, folder, **counts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="only the checks whose name holds all these words")
    parser.add_argument("--quick", action="store_true", help="small counts, as in the suite")
    parser.add_argument("--json", action="store_true", help="one line of JSON a check")
    parser.add_argument("--list", action="store_true", help="name the checks and stop")
    told = parser.parse_args()
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # the damage is of our own making
    wanted = (told.only or "").split()
    chosen = [check for check in _checks() if all(word in check.name for word in wanted)]
    if told.list or not chosen:
        print("\n".join(check.name for check in _checks()))
        return 0 if told.list else 2
    if not shutil.which("strace"):
        print("strace is not installed: fsyncs and power cuts are left out", file=sys.stderr)
    broken = sum([_report(check, quick=told.quick, as_json=told.json) for check in chosen])
    if not told.json:
        print(f"{len(chosen) - broken} checks held, {broken} did not")
    return 1 if broken else 0


def _report(check: Check, *, quick: bool, as_json: bool) -> bool:
    """Run a check and print what it found; whether a promise was broken."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as folder:
        run = check.small if quick else check.heavy
        outcome = run(Path(folder), partial(_progress, check.name))
    seconds = time.monotonic() - begun
    _clear()
    if as_json:
        figures = {figure.what: figure.seconds for figure in outcome.figures}
        print(
            json.dumps(
                {
                    "check": check.name,
                    "seconds": round(seconds, 1),
                    "counts": dict(outcome.counts),
                    "figures": figures,
                    "problems": outcome.problems,
                }
            ),
            flush=True,
        )
        return bool(outcome.problems)
    word = "BROKEN" if outcome.problems else "held"
    print(f"{word:7}{check.name}: {outcome} in {seconds:.0f} s", flush=True)
    for figure in outcome.figures:
        print(f"         {figure}")
    for problem in outcome.problems[:20]:
        print(f"         {problem}")
    return bool(outcome.problems)


def _progress(name: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{name}: {done} of {total}\x1b[K", end="", file=sys.stderr, flush=True)


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
