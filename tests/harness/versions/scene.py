"""An agent in two versions, and how each is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast import Agent, Harness, LogConfig, Mode, Store, SubAgent, key, tool
from holdfast.log.catalog import Row
from holdfast.models import Say, ScriptedModel, Use

SESSION = "s"
TTL = 0.5  # seconds: what the next driver waits for
LOOK = 0.02
PATIENCE = 40.0


@tool(repeat_safe=True)
async def look(item: str) -> str:
    """Look something up."""
    return f"3 of {item}"


@tool(approval="ask")
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


def desk(**parts: Any) -> Agent:
    """The agent, as it was first declared but for `parts`."""
    given = {
        "instructions": "Help.",
        "tools": [look, refund],
        "modes": [Mode("plain"), Mode("brief", instructions="Be brief.", steps=3)],
        "subagents": [SubAgent("clerk", "does a task", instructions="Do it.", tools=["look"])],
    }
    return Agent("Desk", **{**given, **parts})


AGENTS = {"old": desk(), "new": desk(instructions="Help politely.")}


def model() -> ScriptedModel:
    looks: list[str | Say] = [
        Say(calls=[Use("look", item="a")]),
        Say(calls=[Use("look", item="b")]),
        "There.",
    ]
    refunds: list[str | Say] = [Say(calls=[Use("refund", order="42")]), "You have it back."]
    return ScriptedModel.by_input({"Look": looks, "Refund": refunds, ".": "Good day."})


def served(agent: str, store: Store, **settings: Any) -> Harness:
    given = {"default_model": model(), "logging": LogConfig(level="silent"), "ttl": TTL}
    return Harness(AGENTS[agent], store=store, **{**given, **settings})


async def row_when(store: Store, tenant: str, true: Callable[[Row], bool]) -> Row:
    """Wait until the row of the session is so."""
    async with asyncio.timeout(PATIENCE):
        while True:
            row = await store.row(key(SESSION, tenant=tenant))
            if row is not None and true(row):
                return row
            await asyncio.sleep(LOOK)
