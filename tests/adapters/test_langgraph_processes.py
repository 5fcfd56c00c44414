"""A real agent of LangGraph that is killed after any call of its checkpointer continues in another
process, as if nothing had happened."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import connect, key
from holdfast.log.transcript import transcript
from tests import forks

ROOT = Path(__file__).parents[2]
NEEDED = ("langgraph.graph", "langgraph.prebuilt", "holdfast.adapters.langgraph")
EXPECTED = [
    ["human", "Refund 42."],
    ["ai", ""],
    ["tool", "order 42 was shipped"],
    ["tool", "refunded 42: yes"],
    ["ai", "Done."],
]


def agent(url: str, way: str, stop: int = 0) -> Any:
    """Run the agent in a process. Returns what it printed, or its return code if it was killed."""
    words = ("-m", "tests.adapters.langgraph_agent", url, way, str(stop))
    done = forks.run(*words, needs=NEEDED, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return done.returncode
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_agent_killed_after_any_call_continues_in_another_process(
    way: str, tmp_path: Path
) -> None:
    whole = await asyncio.to_thread(agent, f"sqlite:{tmp_path}/whole.db", way)
    assert whole["messages"] == EXPECTED
    urls = [f"sqlite:{tmp_path}/{stop}.db" for stop in range(1, whole["calls"])]
    assert len(urls) > 8
    limit = asyncio.Semaphore(4)

    async def killed(url: str, stop: int) -> None:
        async with limit:
            assert await asyncio.to_thread(agent, url, way, stop) == -signal.SIGKILL
            resumed = await asyncio.to_thread(agent, url, way)
        assert resumed["messages"] == EXPECTED, f"killed after call {stop}"

    await asyncio.gather(*(killed(url, stop) for stop, url in enumerate(urls, 1)))
    for url in urls:
        async with connect(url) as store:
            assert [damage async for damage in store.verify()] == []
            events = [event async for event in store.read(key("customer-42"))]
        shown = [message.text for message in transcript(events)]
        assert shown == ["Refund 42.", "", "Done."]
        calls = [call for message in transcript(events) for call in message.calls]
        assert [call.outcome is not None for call in calls] == [True, True]
