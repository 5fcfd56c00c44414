"""A harness with budgets, a model that uses 50 tokens a call, and what was counted."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Agent, Budget, Harness, LogConfig, Store, tool
from holdfast.environment import Environment
from holdfast.log.catalog import Query
from holdfast.log.events import Event, Key
from holdfast.models import Say, ScriptedModel, Use
from holdfast.sessions.budgets import usage
from holdfast.stores.pages import every_row
from holdfast.values.budgets import BudgetUsage

EACH = 50  # tokens of a call
USED = {"input_tokens": 40, "output_tokens": 10}
PATIENCE = 30.0


class Clock(Environment):
    """The clock of this process, moved."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = 0.0  # seconds

    def time_ns(self) -> int:
        return super().time_ns() + int(self.moved * 1e9)


@tool(repeat_safe=True)
async def look(item: str) -> str:
    """Look something up."""
    return f"3 of {item}"


AGENT = Agent("clerk", instructions="Help.", tools=[look])


def model() -> ScriptedModel:
    return ScriptedModel.by_input(
        {
            "Look": [Say("", calls=[Use("look", item="a")], usage=USED), Say("There.", usage=USED)],
            "Free": Say("Free."),
            ".": Say("Good day.", usage=USED),
        }
    )


def served(store: Store | str, *budgets: Budget, **more: Any) -> Harness:
    given = {"default_model": model(), "logging": LogConfig(level="silent"), **more}
    return Harness(AGENT, store=store, budgets=budgets, **given)


async def counted(store: Store, tenant: str = "main") -> dict[str, BudgetUsage]:
    """What was counted, by scope, name and period."""
    found = [one async for one in usage(store, tenant)]
    return {f"{one.scope}/{one.who}/{one.period}": one for one in found}


async def until_counted(store: Store, name: str, tokens: int, tenant: str = "main") -> BudgetUsage:
    """Wait until this many tokens are counted."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await counted(store, tenant)).get(name)
            if found is not None and found.tokens >= tokens:
                return found
            await asyncio.sleep(0.02)


async def events_of(store: Store, session: str, tenant: str = "main") -> list[Event]:
    return [event async for event in store.read(Key(tenant, session, "main"))]


async def tokens_in_logs(store: Store, tenant: str = "main") -> int:
    """The tokens of all messages in the logs of a tenant, each once."""
    seen: dict[str, int] = {}
    async for session in every_row(store, Query(tenant=tenant)):
        async for row in every_row(store, Query(tenant=tenant, session=session.session)):
            async for event in store.read(row.key):
                if event.kind == "message.completed":
                    said = event.json().get("usage", {})
                    seen[event.id] = said.get("input_tokens", 0) + said.get("output_tokens", 0)
    return sum(seen.values())
