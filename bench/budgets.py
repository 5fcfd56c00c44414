"""What budgets cost: turns of a model that answers at once, with budgets and without."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence

from holdfast import Budget, Harness

from .harness import MACHINE, MEMORY, WARM, Instant, shop, turns_of
from .measure import Bar, Figure, Result, race, ratios, steady
from .settings import Settings
from .turns import url

BUDGETS = (
    Budget(scope="user", tokens=10**12, per="day"),
    Budget(scope="user", cost=10**5, per="month"),
    Budget(scope="tenant", tokens=10**12, per="month"),
)
WITH, ONE = ", three budgets", ", one budget"
PART = 1.05  # of the time of a turn without budgets


def turn(storage: str, turns: int, budgets: Sequence[Budget]) -> float:
    """The mean turn of a new session, in ms: some of the turns meet the writes of the charges."""

    async def main() -> float:
        harness = Harness(shop(), default_model=Instant(), store=storage, budgets=budgets)
        async with harness:
            session = await harness.get_or_create("session", user="ann")
            await turns_of(session, WARM)
            with steady():
                return statistics.fmean(await turns_of(session, turns)) * 1e3

    return asyncio.run(main())


def harness_budgets(settings: Settings) -> Result:
    """A turn with three budgets and a turn without any, in memory and on SQLite."""
    result = Result(name="harness-budgets", title="What budgets cost")
    turns = settings.sizes.turns_harness * 2

    def on(scheme: str, budgets: Sequence[Budget]) -> Callable[[], float]:
        def run() -> float:
            with settings.folder() as folder:
                return turn(url(scheme, folder, "machine"), turns, budgets)

        return run

    runs = {
        MEMORY: on("memory", ()),
        MEMORY + WITH: on("memory", BUDGETS),
        MACHINE: on("sqlite", ()),
        MACHINE + ONE: on("sqlite", BUDGETS[:1]),
        MACHINE + WITH: on("sqlite", BUDGETS),
    }
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    note = f"the mean of {turns} turns"
    for name in runs:
        found, why = values.get(name, []), absent.get(name, "")
        result.figures.append(Figure(name=name, unit="ms", values=found, absent=why, note=note))
    for name in (MACHINE + ONE, MACHINE + WITH):
        why = absent.get(MACHINE, "") or absent.get(name, "")
        parts = [] if why else ratios(values[name], values[MACHINE])
        result.bars.append(Bar(name=name, way="most", bar=PART, values=parts, absent=why))
    return result
