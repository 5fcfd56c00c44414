"""A real agent of the OpenAI Agents SDK in a process: `openai_agent URL CRASH EFFECTS`. It begins a
conversation or approves what its paused run waits for, and prints the items. `CRASH` is `paused` or
`tool`, where it is killed, or `never`. Each refund adds a line to the file `EFFECTS`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool import function_tool

from holdfast.adapters.openai import HoldfastSession

QUIET = RunConfig(tracing_disabled=True)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, crashing: str, effects: str) -> None:
    @function_tool
    def look_up(order: int) -> str:
        return f"order {order} was shipped"

    @function_tool(needs_approval=True)
    def refund(order: int) -> str:
        with Path(effects).open("a", encoding="utf-8") as file:
            file.write(f"{order}\n")
        if crashing == "tool":
            crash()
        return f"refunded {order}"

    calls = [[function_call(name, {"order": 42}, call_id=name)] for name in ("look_up", "refund")]
    answer = [assistant_message("Done.")]
    session = HoldfastSession("customer-42", url)
    agent = Agent("shop", model=ScriptedModel(), tools=[look_up, refund])
    state = await session.load_state(agent)
    steps: list[Any] = [*calls, answer] if state is None else [answer]
    agent = Agent("shop", model=ScriptedModel(steps), tools=[look_up, refund])
    given: Any = "Refund 42."
    if state is not None:
        given = await session.load_state(agent)
        given.approve(given.get_interruptions()[0])
    result = await Runner.run(agent, given, session=session, run_config=QUIET)
    if result.interruptions:
        await session.save_state(result.to_state())
        if crashing == "paused":
            crash()
    else:
        await session.save_state(None)
    print(
        json.dumps([item.get("output") or item.get("name") for item in await session.get_items()])
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
