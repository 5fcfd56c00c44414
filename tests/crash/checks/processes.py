"""Several processes on one store: none fails, nothing is lost or doubled, none waits long."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from holdfast import Event, Key, key

from ..children import Child, Line
from ..outcome import Outcome, Tick, quiet
from ..places import open_at
from ..world import verified

MANY = 8
HOUR = 3_600_000


@contextlib.contextmanager
def many(count: int, patience: float = 600) -> Iterator[list[Child]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Child("one_of_many", patience=patience)) for _ in range(count)]


def together(children: list[Child], gate: Path, told: list[dict[str, Any]]) -> list[Line]:
    """Tell each child its part, let them all go at once, and hear how it went."""
    gate.touch()
    file = os.open(gate, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        for child, part in zip(children, told, strict=True):
            child.tell({**part, "gate": str(gate)})
        early = [line for child in children if "error" in (line := child.hear())]
        fcntl.flock(file, fcntl.LOCK_UN)
        return early or [child.hear() for child in children]
    finally:
        os.close(file)


def openings(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """Eight processes open a store that is not there, and write to it."""
    outcome = Outcome()
    with many(MANY) as children:
        for number in range(rounds):
            tick(number, rounds)
            place = folder / f"round {number}"
            place.mkdir()
            told = [
                {"do": "open", "kind": kind, "folder": str(place), "me": me} for me in range(MANY)
            ]
            answers = together(children, folder / "gate", told)
            errors = [answer["error"] for answer in answers if "error" in answer]
            outcome.expect(not errors, f"round {number}: {errors}")
            events = asyncio.run(_read(kind, place, key("s"), outcome))
            by = sorted(event.id for event in events)
            outcome.equal(by, sorted(f"by-{me}" for me in range(MANY)), f"round {number}: events")
            outcome.counts["rounds"] += 1
    return outcome


async def _read(kind: str, folder: Path, log: Key, outcome: Outcome) -> list[Event]:
    store = await open_at(kind, folder)
    events = [event async for event in store.read(log)]
    outcome.equal(
        [event.seq for event in events], list(range(1, len(events) + 1)), f"{log} numbers"
    )
    await verified(store, outcome, "afterwards")
    await store.aclose()
    return events


def appends(
    kind: str, folder: Path, *, logs: int, seconds: float, most: int = 1_000_000
) -> Outcome:
    """Eight processes append turns of four events, to one log or each to its own."""
    outcome = Outcome()
    with many(MANY, patience=seconds + 300) as children:
        told = [
            {
                "do": "append",
                "kind": kind,
                "folder": str(folder),
                "me": me,
                "session": f"s{me % logs}",
                "seconds": seconds,
                "most": most,
            }
            for me in range(MANY)
        ]
        answers = together(children, folder / "gate", told)
    errors = [answer["error"] for answer in answers if "error" in answer]
    if errors:
        outcome.problems += [f"an append failed: {error}" for error in errors]
        return outcome
    times = [time for answer in answers for time in answer["times"]]
    outcome.counts["appends"] = len(times)
    outcome.measured(f"{MANY} processes, {logs} log(s), an append", times, limit=1.0)
    for log in range(logs):
        wanted = {
            seq + part: f"{me}.{number}.{part}"
            for me, answer in enumerate(answers)
            if me % logs == log
            for number, seq in enumerate(answer["seqs"], 1)
            for part in range(4)
        }
        events = asyncio.run(_read(kind, folder, key(f"s{log}"), outcome))
        found = {event.seq: event.id for event in events}
        outcome.expect(found == wanted, f"log {log}: what was acknowledged is not what is there")
        outcome.counts["events"] += len(events)
    return outcome


def races(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """Two processes append with the same `expected`, their clocks two hours apart: one wins."""
    outcome = Outcome()
    with many(2) as children:
        for me, (child, later) in enumerate(zip(children, (-HOUR, HOUR), strict=True)):
            child.tell(
                {
                    "do": "race",
                    "kind": kind,
                    "folder": str(folder),
                    "me": me,
                    "rounds": rounds,
                    "later": later,
                }
            )
        for child in children:
            child.hear()
        for number in range(rounds):
            tick(number, rounds)
            for child in children:
                child.tell({"go": number})
            answers = [child.hear() for child in children]
            won = [answer["won"] for answer in answers if "won" in answer]
            lost = [answer["lost"] for answer in answers if "lost" in answer]
            outcome.equal(
                (won, lost), ([[number + 1]], [[number, number + 1]]), f"round {number}: {answers}"
            )
            outcome.counts["races"] += 1
    events = asyncio.run(_read(kind, folder, key("s"), outcome))
    outcome.equal(len(events), rounds, "events")
    return outcome
