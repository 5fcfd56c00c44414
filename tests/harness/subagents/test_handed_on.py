"""Sub-agents that a tool of the program's own hands a task to: they end with the run."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from holdfast import Harness, ToolContext, tool
from holdfast.harness.session.session import core_of
from holdfast.models.scripted import Say, Use

from ..kernel.scene import PATIENCE, Slow
from .scene import child, hand, lead, look, paint, plays, scout


@tool
async def research(context: ToolContext) -> Any:
    """Hand it on."""
    return await cast(Any, context).delegate("scout", "Find it.")


@pytest.mark.parametrize("call", [hand("Find it."), Use("research")], ids=["model", "tool"])
async def test_who_works_for_a_run_that_is_aborted_is_stopped(call: Any) -> None:
    slow = Slow()
    model = plays({"Go.": [Say(calls=[call]), "All is well."]})
    agent = lead(scout(model="slow/model"), tools=[look, paint, research])
    async with Harness(agent, default_model=model, providers=[slow]) as harness:
        session = await harness.get_or_create("s")
        await session.post("Go.")
        await slow.gate.someone()
        async with asyncio.timeout(PATIENCE):
            await core_of(session).live.until(lambda: bool(core_of(session).live.state.pending))
            await session.abort()
            assert (await session.wait()).status == "aborted"
            live = (core_of(await child(session))).live
            await live.until(lambda: live.state.active is None)
        assert live.state.run is not None
        assert live.state.run.status == "aborted"
