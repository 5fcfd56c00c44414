"""What a process does that is to be killed: a conversation with a payment that has a probe. The
bank outside is a file, so that it outlives the process.

`python -m tests.harness.probes.story` is the process that all others are forked from.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from holdfast import Agent, Harness, ToolContext, connect, key, tool
from holdfast.events import Key
from holdfast.harness.tools import DontKnow, Happened, NotHappened, ProbeAnswer
from holdfast.models import Say, ScriptedModel, Use
from holdfast.testing.faults import Die, FaultyStore

from ..crash.scene import ENDED, Effects

LOOK = 0.02
REPORT = "".join(f"line {n}\n" for n in range(9_000))
ASKED, ANSWER = "Pay twice.", "Both are paid."
RESULTS = {"pay": "paid 5", "mail": "mailed ann"}


def place(tenant: str) -> Key:
    return key("s", tenant=tenant)


def agent(effects: Effects) -> Agent:
    async def found(context: ToolContext) -> ProbeAnswer:
        made = [done for done in effects.all() if done.key == context.key]
        return Happened(RESULTS[context.name]) if made else NotHappened()

    @tool(probe=found, approval="ask")
    async def pay(cents: int, context: ToolContext) -> str:
        """Pay, at a bank that finds payments by their reference."""
        effects.add("pay", context.key)
        return f"paid {cents}"

    @tool(probe=lambda: DontKnow("mail cannot be looked up"))
    async def mail(to: str, context: ToolContext) -> str:
        """Write to somebody; nobody can say later whether the mail was sent."""
        effects.add("mail", context.key)
        return f"mailed {to}"

    @tool(repeat_safe=True)
    async def report() -> str:
        """Report, at length."""
        return REPORT

    return Agent("Shop", instructions="Pay.", tools=[pay, mail, report])


def model() -> ScriptedModel:
    calls = [Use("pay", cents=5), Use("mail", to="ann"), Use("report")]
    said = zip(("First.", "Then.", "Last."), calls, strict=True)
    return ScriptedModel.by_input(
        {ASKED: [*(Say(text, calls=[use]) for text, use in said), ANSWER]}
    )


async def live(told: dict[str, Any]) -> dict[str, Any]:
    """Serve until the run has ended, or die at the `call`-th append. Returns how many there
    were."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    call = told.get("call", 0)
    plan = [Die(method="append", call=call, after=told["after"])] if call else []
    async with connect(told["url"]) as inner:
        store, at = FaultyStore(inner, plan), place(told["tenant"])
        shop = agent(Effects(Path(told["effects"])))
        settings: dict[str, Any] = {
            "default_model": model(),
            "store": store,
            "tenant": at.tenant,
            "ttl": 0.5,
        }
        async with Harness(shop, **settings) as harness:
            if told.get("send", True):
                session = await harness.get_or_create("s")
                await session.post(ASKED, key="the one")
            while (row := await inner.row(at)) is None or row.run not in ENDED:  # noqa: ASYNC110
                await asyncio.sleep(LOOK)
        return {"appends": store.calls["append"], "run": row.run}


if __name__ == "__main__":
    from ..crash.nursery import serve

    serve(live)
