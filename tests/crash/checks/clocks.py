"""No clock takes part in the order of a log: two processes race whose clocks are hours apart. And
none that was ahead blocks a session: what its process left undone is taken up."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

from holdfast import Agent, Harness, LogConfig, connect, key
from holdfast.models.scripted import Say, ScriptedModel

from ..children import Child
from ..outcome import Outcome, Tick, quiet
from ..places import open_at, url
from ..world import verified

HOUR = 3_600_000
DAYS = 48 * HOUR
PATIENCE = 60.0  # seconds until a session counts as blocked


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


def set_back(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """A process whose clock is two days ahead is killed while it drives a session, or when it has
    written a message down: a process with the right clock finds it at once and takes it up."""
    outcome = Outcome()
    place = url(kind, folder)
    for number in range(rounds):
        tick(number, rounds)
        how = ("drives", "writes")[number % 2]
        session = f"s{number}"
        with Child("driver", place, session, str(DAYS), how) as driver:
            driver.hear()
            driver.kill()
        asyncio.run(_taken_up(place, session, how, outcome))
    return outcome


async def _taken_up(place: str, session: str, how: str, outcome: Outcome) -> None:
    async with connect(place) as store:
        found = await store.runnable("main", agents=["clerk"])
        outcome.equal(found, [key(session)], f"{session}, {how}: what is runnable")
        agent, model = Agent("clerk", instructions="Help."), ScriptedModel([Say("Good day.")])
        logs = LogConfig(level="silent")
        async with Harness(agent, store=store, default_model=model, logging=logs):
            try:
                async with asyncio.timeout(PATIENCE):
                    while (row := await store.row(key(session))) is None or row.run != "done":  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            except TimeoutError:
                outcome.problems.append(f"{session}, {how}: it was not taken up")
            else:
                outcome.counts["takeovers"] += 1
        outcome.problems += [f"{session}: {damage}" async for damage in store.verify()]
