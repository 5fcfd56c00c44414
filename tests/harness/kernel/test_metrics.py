"""What a run took and used, of this run and no other."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import tool
from holdfast.harness.session.session import core_of
from holdfast.models.scripted import Fail, Say, Use

from .scene import helper, script, serve


@tool
async def look(order: str) -> str:
    """Look."""
    await asyncio.sleep(0.01)
    if order == "broken":
        raise RuntimeError("no")
    return "seen"


@pytest.mark.parity("harness-kernel", 26)
async def test_calls_errors_and_time_of_each_tool() -> None:
    calls = [Use("look", order="1"), Use("look", order="broken"), Use("look", order=3)]
    usage = {"input_tokens": 5, "output_tokens": 2}
    steps = Say(calls=calls, usage=usage), Say("ok", usage=usage)
    async with serve(helper(tools=[look]), *steps, price=lambda ref, used: 0.5) as harness:
        metrics = (await harness.send("s", "go")).metrics
    assert metrics is not None
    assert (metrics.tool_calls, metrics.steps, metrics.model_calls) == (3, 2, 2)
    assert [*metrics.tools] == ["look"]
    of_look = metrics.tools["look"]
    assert (of_look.count, of_look.errors) == (3, 2)
    assert 0 < of_look.seconds < 30
    assert metrics.usage == {"input_tokens": 10, "output_tokens": 4}  # of all steps
    assert metrics.cost == 1.0
    assert sorted(error.code for error in metrics.errors) == ["bad_arguments", "tool_failed"]
    assert metrics.seconds is not None


@pytest.mark.parity("harness-kernel", 80)
async def test_the_figures_are_those_of_this_run() -> None:
    usage = {"input_tokens": 5}
    failing = [False]
    model = script(lambda call: Fail(RuntimeError("no")) if failing[0] else Say("ok", usage=usage))
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        first = await session.send("go")
        failing[0] = True
        second = await session.send("go")
        errors = [session.status.error]
        assert first.metrics is not None
        assert second.metrics is not None
        assert (first.metrics.status, first.usage) == ("done", usage)
        assert (second.metrics.status, second.usage) == ("failed", {})
        assert second.metrics.run == second.run != first.run
        failing[0] = False
        third = await session.send("go")
        assert third.usage == usage
        assert [*errors, session.status.error] == ["model_failed", None]
        assert core_of(session).live.state.usage == {"input_tokens": 10}  # of the whole session
