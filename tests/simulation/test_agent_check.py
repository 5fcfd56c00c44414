"""An agent of the user's own in simulations: its defects are found."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Agent, ToolContext, tool
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.testing.simulation import check_agent, record_effect


@tool
async def pay(times: int, context: ToolContext) -> str:
    """Pay this many times."""
    for _ in range(times):
        record_effect(context)
    return "paid"


def model(times: int) -> ScriptedModel:
    return ScriptedModel.by_input({"go": [Say(calls=[Use("pay", times=times)]), "done"]})


def test_a_tool_that_acts_twice_is_found() -> None:
    agent = Agent("shop", instructions="Pay.", tools=[pay])
    with pytest.raises(AssertionError, match="took effect 2 times"):
        check_agent(agent, lambda: model(2), ["go"], schedules=1)
    (outcome,) = check_agent(agent, lambda: model(1), ["go"], schedules=1)
    assert [told.status for told in outcome.told] == ["done"]
    assert len(outcome.effects) == 1


@tool
async def spin() -> str:
    """Never wait, and never return."""
    while True:  # noqa: ASYNC110 - it never ends, on purpose
        await asyncio.sleep(0)


def test_a_tool_that_never_waits_is_found() -> None:
    agent = Agent("shop", instructions="Spin.", tools=[spin])
    model = ScriptedModel.by_input({"go": [Say(calls=[Use("spin")]), "done"]})
    with pytest.raises(AssertionError, match="callbacks without waiting"):
        check_agent(agent, lambda: model, ["go"], schedules=1)
