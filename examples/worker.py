"""Drives the sessions of all tenants: `python worker.py URL`. Start it as often as you like."""

import asyncio
import sys

from holdfast import Agent, Worker, tool
from holdfast.models import offline


@tool(risk="read", repeat_safe=True)
async def stock(item: str) -> str:
    """Look up how many of an item are in stock."""
    return f"3 of {item}"


agent = Agent("clerk", instructions="Answer questions about stock.", tools=[stock])


async def main(url: str) -> None:
    async with Worker(agent, tenants="all", store=url, default_model=offline()) as worker:
        await worker.run()  # until SIGTERM or Ctrl-C


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:work.db"))
