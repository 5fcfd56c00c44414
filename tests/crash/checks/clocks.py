"""No clock takes part in the order of a log: two processes race whose clocks are hours apart."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

from holdfast import key

from ..children import Child
from ..outcome import Outcome, Tick, quiet
from ..places import open_at
from ..world import verified

HOUR = 3_600_000


def skewed_races(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """Both append with the same `expected`, one an hour early and one an hour late: one wins, the
    other learns the head."""
    outcome = Outcome()
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                Child("racer", kind, str(folder), name, str(rounds), later, patience=1_800)
            )
            for name, later in (("early", str(HOUR)), ("late", str(-HOUR)))
        ]
        for racer in racers:
            racer.hear()
        for number in range(rounds):
            tick(number, rounds)
            for racer in racers:
                racer.tell({"go": number})
            answers = [racer.hear() for racer in racers]
            won = [answer["won"] for answer in answers if "won" in answer]
            lost = [answer["lost"] for answer in answers if "lost" in answer]
            outcome.equal(
                (won, lost), ([[number + 1]], [[number, number + 1]]), f"round {number}: {answers}"
            )
            outcome.counts["races"] += 1
        for racer in racers:
            racer.finish()
    asyncio.run(_dense(kind, folder, rounds, outcome))
    return outcome


async def _dense(kind: str, folder: Path, count: int, outcome: Outcome) -> None:
    store = await open_at(kind, folder)
    found = [event.seq async for event in store.read(key("s"))]
    outcome.equal(found, list(range(1, count + 1)), "the numbers")
    await verified(store, outcome, "afterwards")
    await store.aclose()
