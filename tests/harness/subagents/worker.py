"""A process that is to be killed: `python -m tests.harness.subagents.worker` with what it is told
as JSON. It serves the scene's agent, sends the message, and dies where it was told to."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import Struct

from holdfast import Agent, Harness, SubAgent, connect, tool
from holdfast.events import key
from holdfast.harness.session.session import Session, core_of
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.testing.faults import Die, FaultyStore

from .scene import told as was_told

TTL = 0.5
LOOK = 0.02


class Told(Struct):
    """The store; whether the sub-agent is a fork, or detached; where to die: after the `call`-th
    call of `method`, or in the tool of the sub-agent."""

    url: str
    forked: bool = False
    method: str = ""
    call: int = 0
    in_tool: bool = False
    detached: bool = False


def agent(*, forked: bool, detached: bool = False) -> Agent:
    @tool(repeat_safe=True)
    async def look(what: str) -> str:
        """Look at something."""
        return f"{what} is blue"

    how: dict[str, Any] = {"forked": forked, "detached": detached}
    sub = SubAgent("scout", "finds", instructions="Scout.", tools=["look"], **how)
    return Agent("Lead", instructions="Lead.", tools=[look], subagents=[sub])


def model(*, detached: bool = False) -> ScriptedModel:
    used = {"input_tokens": 1}
    task: dict[str, Any] = {"agent": "scout", "task": "Find it."}
    call = Use("subagent", **task, **({"detached": True} if detached else {}))
    return ScriptedModel.by_input(
        {
            "Sub-agent": Say("I know now."),
            "Find it.": [
                Say(calls=[Use("look", what="sky")], usage=used),
                Say("The sky is blue.", usage=used),
            ],
            "Go.": [
                Say(calls=[call], usage=used),
                Say("All is well.", usage=used),
            ],
        }
    )


def harness(store: Any, served: Agent, **settings: Any) -> Harness:
    quiet = LogConfig(level="silent")
    script = model(detached=any(sub.detached for sub in served.subagents))
    return Harness(served, default_model=script, store=store, ttl=TTL, logging=quiet, **settings)


def deadly(url: str) -> Agent:
    """The same agent, but its tool kills the process when its parent has let go."""

    @tool
    async def look(what: str) -> str:
        """Look at something."""
        async with connect(url) as store:
            while True:
                row = await store.row(key("s"))
                if row is not None and row.run == "waiting":
                    os.kill(os.getpid(), signal.SIGKILL)
                await asyncio.sleep(LOOK)

    return replace(agent(forked=False), tools=[look])


async def settled(session: Session) -> None:
    """Wait until the parent has read what its sub-agents have reported."""
    await core_of(session).catch_up()
    live = core_of(session).live
    await live.until(lambda: live.state.active is None and not live.state.queue)


async def live(told: Told) -> dict[str, int]:
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    plan = [Die(method=told.method, call=told.call, after=True)] if told.method else []
    served = deadly(told.url) if told.in_tool else agent(forked=told.forked, detached=told.detached)
    async with connect(told.url) as inner:
        store = FaultyStore(inner, plan)
        async with harness(store, served) as host:
            session = await host.get_or_create("s")
            await session.post("Go.", key="the one")
            await session.wait()
            for each in await session.subagents.list():
                thread = await session.subagents.open(each.thread)
                await was_told(thread)
            if told.detached:
                await settled(session)
        return dict(store.calls)


if __name__ == "__main__":
    calls = asyncio.run(live(msgspec.json.decode(sys.argv[1], type=Told)))
    print(msgspec.json.encode(calls).decode())
