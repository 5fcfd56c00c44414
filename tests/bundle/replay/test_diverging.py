"""What comes otherwise is told, with both sides; and what would happen if something were other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast import Agent, InvalidValue, Mode, SessionNotFound, ToolContext, tool
from holdfast.bundle import Replayed, export_bundle, replay
from holdfast.events import Scope
from holdfast.models import Say, ScriptedModel, Use
from holdfast.models.port import FromTools
from holdfast.models.scripted import Step
from holdfast.stores.memory import MemoryStore

from .scenes import SCENES, SCOPE, shop, talk


async def recorded(name: str) -> tuple[MemoryStore, Agent]:
    store = MemoryStore()
    return store, await SCENES[name](store)


def other(agent: Agent, name: str, **changes: Any) -> Agent:
    """The same agent with one tool declared in another way."""
    tools = [t.replace(**changes) if t.name == name else t for t in agent.tools]
    return replace(agent, tools=tools)


def where(found: Replayed) -> tuple[Any, ...]:
    assert found.first is not None
    assert not found.same
    first = found.first
    return first.step, first.kind, first.path, first.recorded, first.came


@pytest.mark.parity("user-demand", 79)
async def test_other_instructions_are_the_first_divergence() -> None:
    store, agent = await recorded("tools")
    found = await replay((store, SCOPE), replace(agent, instructions="Help nobody."))
    assert where(found) == (1, "context.built", "system", "Help with orders.", "Help nobody.")
    assert (found.stopped, found.compared) == ("diverged", 2)
    same = await replay(
        (store, SCOPE), replace(agent, instructions="Help nobody."), ignore=["context.built"]
    )
    assert same.same


async def test_instructions_that_change_later_are_told_where_they_do() -> None:
    store, agent = await recorded("plain")
    told = []

    def instructions(reading: Any) -> str:
        told.append(reading.run)
        return "Help with orders." if len(set(told)) == 1 else "Never mind."

    found = await replay((store, SCOPE), replace(agent, instructions=instructions))
    assert where(found)[:3] == (2, "message.completed", "system")
    assert where(found)[3:] == ("Help with orders.", "Never mind.")


async def test_another_schema_of_a_tool_is_told() -> None:
    store, agent = await recorded("tools")
    found = await replay((store, SCOPE), other(agent, "look", version="2"))
    assert where(found)[:3] == (1, "message.completed", "calls[0].fingerprint")


async def test_a_tool_that_is_gone_is_told() -> None:
    store, agent = await recorded("tools")
    without = replace(agent, tools=[t for t in agent.tools if t.name != "look"])
    found = await replay((store, SCOPE), without)
    assert where(found)[1:3] == ("message.completed", "calls[0].fingerprint")
    assert where(found)[4] is None


async def test_what_would_not_be_asked_any_more_is_told() -> None:
    store, agent = await recorded("approved")
    found = await replay((store, SCOPE), other(agent, "refund", approval="auto"))
    step, kind, path, was, came = where(found)
    assert (step, kind, path) == (1, "pending.opened", "kind")
    assert list(was) == ["pending.opened"]
    assert list(came) == ["tool.started"]


async def test_what_would_be_asked_now_is_told() -> None:
    store, agent = await recorded("tools")
    found = await replay((store, SCOPE), other(agent, "look", approval="ask"))
    step, kind, path, _, came = where(found)
    assert (step, kind, path) == (1, "tool.started", "kind")
    assert came["pending.opened"]["what"] == "approval"


async def test_another_category_of_what_was_asked_is_told() -> None:
    store, agent = await recorded("approved")
    found = await replay((store, SCOPE), other(agent, "refund", category="money"))
    assert where(found)[1:] == ("pending.opened", "detail.category", "payments", "money")


async def test_another_model_of_the_agent_is_told() -> None:
    store, agent = await recorded("tools")
    found = await replay((store, SCOPE), replace(agent, model="openai/gpt-5.1"))
    assert where(found) == (0, "model.called", "model", "scripted/demo", "openai/gpt-5.1")


async def test_limits_of_a_mode_are_told() -> None:
    store, agent = await recorded("tools")
    found = await replay((store, SCOPE), replace(agent, modes=[Mode("default", steps=1)]))
    assert where(found)[:3] == (0, "run.started", "limits.steps")


async def test_a_sub_agent_that_is_gone_is_told() -> None:
    store, agent = await recorded("subagents")
    found = await replay((store, SCOPE), replace(agent, subagents=[]))
    assert not found.same
    assert where(found)[1:3] == ("message.completed", "calls[0].fingerprint")


@pytest.mark.parity("user-demand", 79)
async def test_no_tool_is_called_and_no_hook() -> None:
    store, called = MemoryStore(), list[str]()

    @tool
    def charge() -> str:
        """Charge."""
        called.append("charge")
        return "charged"

    agent = shop(tools=[charge])
    await talk(store, agent, [Say(calls=[Use("charge")]), "Done."], "Go.")
    assert called == ["charge"]
    assert (await replay((store, SCOPE), agent)).same
    assert (await replay((store, SCOPE))).same
    assert called == ["charge"]


async def test_nothing_is_written_to_what_is_replayed() -> None:
    store, agent = await recorded("approved")
    before = [event async for event in store.read(next(iter(store._logs)))]
    await replay((store, SCOPE), agent)
    assert [event async for event in store.read(next(iter(store._logs)))] == before


# What would be


@pytest.mark.parity("user-demand", 79)
async def test_a_swapped_tool_shows_what_the_model_would_be_asked() -> None:
    store, agent = await recorded("tools")
    seen = []

    async def look(order: str) -> dict[str, str]:
        seen.append(order)
        return {"order": order, "state": "fine"}

    for with_agent in (agent, None):
        found = await replay((store, SCOPE), with_agent, tools={"look": look})
        assert where(found)[1:] == ("tool.finished", "result.state", "broken", "fine")
        assert found.stopped == "prompt"
        assert found.asked is not None
        last = found.asked.messages[-1]
        assert isinstance(last, FromTools)
        assert "fine" in last.results[0].content
        assert [d.kind for d in found.others] == ["model.called"]
        assert found.asked.system == "Help with orders."
    assert seen == ["1", "1"]


async def test_a_swapped_tool_that_says_the_same_changes_nothing() -> None:
    store, agent = await recorded("tools")

    @tool(name="look")
    async def same(order: str, context: ToolContext) -> dict[str, str]:
        """Look."""
        await context.progress("half")
        return {"order": order, "state": "broken"}

    found = await replay((store, SCOPE), agent, tools={"look": same})
    assert found.same


async def test_a_swapped_model_goes_on_with_recorded_answers_of_tools() -> None:
    store, agent = await recorded("tools")
    steps: list[Step] = [Say("I look.", calls=[Use("look", order="1")]), "It was broken indeed."]
    for with_agent in (agent, None):
        found = await replay((store, SCOPE), with_agent, model=ScriptedModel(steps, per_turn=True))
        assert where(found)[1:] == ("message.completed", "text", "Looking.", "I look.")
        assert [d.came for d in found.others] == ["It was broken indeed."]
        assert found.stopped == "end"
        kinds = [event.kind for event in found.events["main"]]
        assert kinds[-2:] == ["message.completed", "run.finished"]


async def test_a_swapped_model_is_fed_the_messages_and_decisions_that_followed() -> None:
    store = MemoryStore()
    agent = await SCENES["approved"](store)
    await talk(store, agent, ["You are welcome."], "Thanks.")
    steps: list[Step] = [Say("Paying.", calls=[Use("refund", order="1")]), "Paid."]
    found = await replay((store, SCOPE), agent, model=ScriptedModel(steps, per_turn=True))
    kinds = [event.kind for event in found.events["main"]]
    assert kinds.count("message.received") == 1
    assert "pending.settled" in kinds
    finished = [e.json() for e in found.events["main"] if e.kind == "tool.finished"]
    assert finished[0]["result"] == "refunded 1: 100"
    assert found.stopped == "waiting"  # the second refund was never decided on


@pytest.mark.parity("user-demand", 79)
async def test_a_model_is_swapped_from_a_step_on() -> None:
    store, agent = await recorded("tools")
    model = ScriptedModel(["never", "All is well."])
    found = await replay((store, SCOPE), agent, from_step=2, model=model)
    assert where(found) == (2, "message.completed", "text", "Broken.", "All is well.")
    assert len(model.calls) == 1


@pytest.mark.parity("user-demand", 79)
async def test_what_nobody_has_answered_before_is_not_made_up() -> None:
    store, agent = await recorded("tools")
    model = ScriptedModel([Say(calls=[Use("look", order="999")]), "Done."])
    found = await replay((store, SCOPE), agent, model=model)
    assert found.stopped == "no_answer"
    assert "999" in str(found.others[-1].came)


async def test_before_its_step_a_divergence_ends_the_replay() -> None:
    store, agent = await recorded("tools")
    changed = replace(agent, instructions="Help nobody.")
    found = await replay((store, SCOPE), changed, from_step=2, model=ScriptedModel(["x", "y"]))
    assert (found.stopped, where(found)[:2]) == ("diverged", (1, "context.built"))


async def test_wrong_arguments_are_refused() -> None:
    store, agent = await recorded("plain")
    with pytest.raises(InvalidValue, match="from_step"):
        await replay((store, SCOPE), agent, from_step=0)
    with pytest.raises(InvalidValue, match="look"):
        await replay((store, SCOPE), agent, tools={"look": 7})
    with pytest.raises(SessionNotFound):
        await replay((store, Scope("main", "nobody")))
    with pytest.raises(SessionNotFound):
        await replay((store, SCOPE), thread="other")


async def test_from_a_cut_another_model_goes_on() -> None:
    store, agent = await recorded("tools")
    bundle = await export_bundle((store, SCOPE), "local", upto=9)
    model = ScriptedModel(["never", "All is well."])
    found = await replay(bundle, agent, from_step=1, model=model)
    assert found.events["main"][-1].kind == "run.finished"
