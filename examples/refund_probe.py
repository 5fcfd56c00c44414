"""A refund that survives a crash: `python refund_probe.py crash`, then without `crash`."""

import asyncio
import os
import sqlite3
import sys

from holdfast import Agent, Harness, ToolContext, tool
from holdfast.harness.tools import Happened, NotHappened, ProbeAnswer
from holdfast.models import offline


def bank() -> sqlite3.Connection:
    """The vendor: it pays twice if it is asked twice, but finds payments by their reference."""
    bank = sqlite3.connect("bank.db", isolation_level=None)
    bank.execute("create table if not exists payments (reference, cents)")
    return bank


async def did_refund(context: ToolContext) -> ProbeAnswer:
    """Asked after a crash, in place of a person: did the refund with this key happen?"""
    found = bank().execute("select cents from payments where reference = ?", [context.key])
    paid = found.fetchone()
    return NotHappened() if paid is None else Happened(f"refunded {paid[0]} cents")


@tool(approval="ask", probe=did_refund)
async def refund(order: str, cents: int, context: ToolContext) -> str:
    """Refund an order."""
    bank().execute("insert into payments values (?, ?)", [context.key, cents])
    if sys.argv[1:] == ["crash"]:
        os._exit(9)  # the money is gone, and nobody has written that down
    return f"refunded {cents} cents"


agent = Agent("shop", instructions="Help.", tools=[refund], model="scripted/offline")


async def main() -> None:
    async with Harness(agent, providers=[offline()], store="sqlite:shop.db", ttl=1) as harness:
        session = await harness.get_or_create("customer-42")
        if not await session.transcript():
            await session.send("refund order=42 cents=1999")
            await session.approve(actor="ann")
        result = await session.wait()
        print(result.status, len(bank().execute("select * from payments").fetchall()), "payment")


if __name__ == "__main__":
    asyncio.run(main())
