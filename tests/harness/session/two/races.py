"""Processes that do to one session whatever they like, all at once, as fast as they can: when they
have come to rest every promise was kept, and all of them show the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ....crash.outcome import Outcome, Tick, quiet
from ....crash.places import url
from ....processes.crew import Worker, crew
from .laws import Told, broken, events_of

MODULE = "tests.harness.session.two.worker"
PATIENCE = 3600.0  # seconds that all rounds may take
ENOUGH = 500  # answers until nothing waits, and looks until all show the same


def races(
    kind: str, folder: Path, *, rounds: int, verbs: int, processes: int = 3, tick: Tick = quiet
) -> Outcome:
    """So many rounds, in each of which every process does so many things."""
    outcome = Outcome()
    with crew(processes, patience=PATIENCE, module=MODULE) as workers:
        for number in range(rounds):
            _race(workers, kind, folder, number, verbs, outcome)
            tick(number + 1, rounds)
    return outcome


def _race(
    workers: list[Worker], kind: str, folder: Path, number: int, verbs: int, outcome: Outcome
) -> None:
    room = folder / str(number)
    room.mkdir()
    (room / "gate").touch()
    for worker in workers:
        _ask(worker, "open", url=url(kind, folder), folder=str(room), session=f"s{number}")
    for place, worker in enumerate(workers):
        worker.order("many", seed=1000 * number + place, verbs=verbs)
    told: Told = []
    for answer in [worker.hear() for worker in workers]:
        outcome.expect("error" not in answer, f"round {number}: {answer.get('error')}")
        told.extend(answer.get("told", ()))
    told.extend(_rest(workers, number, outcome))
    events = events_of(_ask(workers[0], "log")["events"])
    outcome.problems.extend(f"round {number}: {problem}" for problem in broken(events, told))
    _same(workers, number, outcome)
    outcome.counts["verbs"] += len(told)
    outcome.counts["refused"] += sum("refused" in one for one in told)
    outcome.counts["events"] += len(events)
    outcome.counts["drivers"] += len({e.json().get("driver") for e in events if "run." in e.kind})
    for worker in workers:
        _ask(worker, "close")


def _rest(workers: list[Worker], number: int, outcome: Outcome) -> Told:
    """Answer everything that waits."""
    told: Told = []
    for n in range(ENOUGH):
        worker = workers[n % len(workers)]
        if _ask(worker, "waits")["status"] != "waiting":
            return told
        told.append(_ask(worker, "verb", name="decide", n=3 * n + 1))
    outcome.problems.append(f"round {number}: it never came to rest")
    return told


def _same(workers: list[Worker], number: int, outcome: Outcome) -> None:
    for _ in range(ENOUGH):
        shown: list[dict[str, Any]] = [_ask(worker, "look", head=0) for worker in workers]
        if all(one == shown[0] for one in shown):
            view = shown[0]["view"]
            outcome.equal(
                (view["pending"], view["queue"], view["run"][0]),
                ([], [], None),
                f"round {number}: what is open",
            )
            return
    outcome.problems.append(f"round {number}: they show different things")


def _ask(worker: Worker, do: str, **told: Any) -> dict[str, Any]:
    answer = worker.ask(do, **told)
    if "error" in answer:
        raise AssertionError(f"{do}: {answer['error']}")
    return answer
