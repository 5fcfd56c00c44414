"""Sets a report for each morning, and ends: `python daily_report.py`. A worker writes it (see
worker.py)."""

import asyncio

from worker import agent

from holdfast import Harness
from holdfast.models import offline


async def main() -> None:
    async with Harness(
        agent, default_model=offline(), store="sqlite:work.db", tenant="acme"
    ) as harness:
        session = await harness.get_or_create("reports")
        # The same schedule again changes nothing, so this may run at each deploy.
        await session.schedules.set(
            "daily",
            message="Report which items are short of stock.",
            cron="0 9 * * 1-5",
            timezone="Europe/Berlin",
            missed="once",
        )
        await session.schedules.set("hourly", message="Did deliveries arrive?", every=3_600)
        for schedule in await session.schedules.list():
            print(schedule.name, "fires next at", schedule.next)


if __name__ == "__main__":
    asyncio.run(main())
