"""The agent that several processes serve at once, and how one of them is told what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import Agent, Harness, Store, tool
from holdfast.events import key
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.harness.tools import ToolContext
from holdfast.models.scripted import Say, ScriptedModel, Use

from ..crash.scene import Effects

AT = key("s")
STORY = " ".join(f"word{n}" for n in range(60))
LOOK = 0.02


def agent(folder: Path) -> Agent:
    effects = Effects(folder / "effects")

    @tool
    async def work(context: ToolContext) -> str:
        """Work until somebody says that it is enough."""
        while not await asyncio.to_thread((folder / "enough").exists):  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
        await asyncio.to_thread(effects.add, "work", context.key)
        return "worked"

    @tool(approval="ask")
    def pay(context: ToolContext) -> str:
        """Pay."""
        effects.add("pay", context.key)
        return "paid"

    return Agent("Stage", instructions="Obey.", tools=[work, pay])


def harness(store: str | Store, folder: Path, ttl: float) -> Harness:
    model = ScriptedModel.by_input(
        {
            "Faster.": "I hurry.",
            "And then?": "Nothing.",
            "Tell a story.": Say(STORY, delay=0.03),
            "Work.": [Say("I work.", calls=[Use("work")]), "Worked."],
            "Pay.": [Say(calls=[Use("pay")]), "Paid."],
        }
    )
    return Harness(
        agent(folder),
        default_model=model,
        store=store,
        ttl=ttl,
        logging=LogConfig(level="silent"),
    )
