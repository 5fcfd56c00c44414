"""Schedules a follow-up, and ends: `python follow_up.py SECONDS`. A worker asks (see worker.py)."""

import asyncio
import sys

from worker import agent

from holdfast import Harness
from holdfast.models import offline

DAY = 86_400


async def main(seconds: float) -> None:
    async with Harness(
        agent, default_model=offline(), store="sqlite:work.db", tenant="acme"
    ) as harness:
        session = await harness.get_or_create("customer-42")
        print((await session.send("My lamp is broken.")).text)
        # The same id again moves the follow-up; `session.timers.clear("lamp")` cancels it.
        await session.timers.set("Ask whether the lamp works.", seconds=seconds, id="lamp")
        print("scheduled:", session.timers.all)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 3 * DAY))
