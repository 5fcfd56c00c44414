"""Work that fails after all its callers were cancelled is not reported as an error of asyncio."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from holdfast import Agent, Harness
from holdfast.models.scripted import ScriptedModel
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore, Stall


async def test_failed_opening_of_a_session_after_its_callers_were_cancelled_is_silent() -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    await _cancel_all_callers_then_fail()
    gc.collect()  # a task reports an error that nobody retrieved when it is collected
    assert reports == []


async def _cancel_all_callers_then_fail() -> None:
    stall = Stall(method="row")
    store = FaultyStore(MemoryStore(), [stall, Fail(method="row")])
    agent = Agent("helper", instructions="Help.")
    async with Harness(agent, default_model=ScriptedModel(["hi"]), store=store) as harness:
        before = asyncio.all_tasks()
        callers = {asyncio.create_task(harness.get_or_create("s")) for _ in range(3)}
        await stall.reached.wait()
        opening = asyncio.all_tasks() - before - callers
        assert len(opening) == 1
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        stall.go.set()
        await asyncio.wait(opening)
