"""How long the first message of a small tenant waits beside tenants with many waiting sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

import holdfast
from holdfast import Sessions, Worker
from holdfast.models.port import Chunk, FromUser, ModelCall

from .harness import PROCESS, Instant, shop
from .measure import Bar, Figure, Result, race
from .settings import Settings
from .turns import url

TENANTS = 50
SLOTS = 8
TURN = 0.05  # seconds that the model takes
TOGETHER = 500  # messages that are posted at once
FIRST = "the first message"
BAR = 3.0  # seconds: a search each second, then less than 58 turns on 8 slots
UNIT = "s"


class Slow(Instant):
    """A model that takes a while. `first` is set when it is asked for the first message."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.first = asyncio.Event(), asyncio.Event()

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.begun.set()
        said = [each for each in call.messages if isinstance(each, FromUser)]
        if FIRST in str(said):
            self.first.set()
        await asyncio.sleep(TURN)
        async for chunk in super().stream(call):
            yield chunk


async def delay(place: str, many: int) -> float:
    """Return the seconds from the post of a small tenant's first message to its model call, beside
    a tenant with `many` waiting sessions, and others with a few each."""
    model, agent = Slow(), shop()
    async with holdfast.connect(place) as store:
        waiting = [("t0", n) for n in range(many)]
        waiting += [(f"t{tenant}", n) for tenant in range(1, TENANTS - 1) for n in range(5)]

        async def post(tenant: str, text: str) -> None:
            await Sessions(store, tenant=tenant).post(text, text, agent=agent.key)

        for start in range(0, len(waiting), TOGETHER):
            some = waiting[start : start + TOGETHER]
            await asyncio.gather(*(post(tenant, f"s{n}") for tenant, n in some))
        async with Worker(
            agent, tenants="all", store=store, default_model=model, parallel_recovery=SLOTS
        ):
            await model.begun.wait()
            posted = time.perf_counter()
            await post("small", FIRST)
            await model.first.wait()
            return time.perf_counter() - posted


def fairness(settings: Settings) -> Result:
    """The first message of one of 50 tenants, on SQLite."""
    many = settings.sizes.left
    result = Result(name="fairness", title=f"the first message of one of {TENANTS} tenants")
    alone, beside = "no tenant with many sessions", f"a tenant with {many:,} waiting sessions"

    def on(count: int) -> float:
        with settings.folder() as folder:
            return asyncio.run(delay(url("sqlite", folder, "process"), count))

    runs = {alone: lambda: on(5), beside: lambda: on(many)}
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for name in runs:
        found, why = values.get(name, []), absent.get(name, "")
        title = f"beside {name}, {PROCESS}"
        result.figures.append(Figure(name=title, unit=UNIT, values=found, absent=why))
    found, why = values.get(beside, []), absent.get(beside, "")
    result.bars.append(
        Bar(name=f"beside {beside}", way="most", bar=BAR, unit=UNIT, values=found, absent=why)
    )
    return result
