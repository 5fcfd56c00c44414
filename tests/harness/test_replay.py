"""A log that the harness wrote, played again by the harness; and what only one model can read."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Agent, Harness, tool
from holdfast.harness.session.session import Session
from holdfast.models import RecordedModel, Say, ScriptedModel, Use
from holdfast.models.port import FromModel, ModelCall

SCRIPT: list[Any] = [
    Say("Let me look.", calls=[Use("look", order="42"), Use("look", order="43")]),
    Say("Shall I?", calls=[Use("refund", order="42")]),
    "It is done.",
]


def shop(state: str = "broken") -> Agent:
    @tool
    async def look(order: str) -> dict[str, str]:
        """Look an order up."""
        return {"order": order, "state": state}

    @tool(approval="ask")
    async def refund(order: str) -> str:
        """Refund an order."""
        return f"refunded {order}"

    return Agent("shop", instructions="Help.", tools=[look, refund])


async def play(session: Session) -> None:
    """Two turns, with one approval."""
    for text in ("Order 42 is broken.", "Order 44 as well."):
        result = await session.send(text)
        if result.status == "waiting":
            await session.approve(actor="ann")
            result = await session.wait()
        result.raise_for_status()


async def said(session: Session) -> list[Any]:
    calls = [
        (m.role, m.text, [(c.name, c.arguments, c.outcome and c.outcome.result) for c in m.calls])
        for m in await session.transcript()
    ]
    return list(calls)


async def test_a_log_of_the_harness_is_played_again_by_the_harness() -> None:
    async with Harness(shop(), default_model=ScriptedModel(SCRIPT, per_turn=True)) as harness:
        session = await harness.get_or_create("first")
        await play(session)
        log, first = await session.events(), await said(session)
    assert len(first) == 8
    async with Harness(shop(), default_model=RecordedModel(log)) as harness:
        session = await harness.get_or_create("again")
        await play(session)
        assert await said(session) == first


async def test_a_replay_that_goes_another_way_is_told() -> None:
    async with Harness(shop(), default_model=ScriptedModel(SCRIPT, per_turn=True)) as harness:
        session = await harness.get_or_create("first")
        await play(session)
        log = await session.events()
    async with Harness(shop("fine"), default_model=RecordedModel(log)) as harness:
        session = await harness.get_or_create("again")
        result = await session.send("Order 42 is broken.")
        assert (result.status, result.code) == ("failed", "model_failed")
        assert result.metrics is not None
        assert result.metrics.model_calls == 2  # it said what it had said until the tools did not


def bound_to(ref: str, seen: list[ModelCall]) -> ScriptedModel:
    def speak(call: ModelCall) -> Say:
        seen.append(call)
        return Say(f"I am {ref}.", bound=[{"signature": f"of {ref}", "n": 0.1}])

    return ScriptedModel([speak], ref=ref, repeat=True)


@pytest.mark.parity("user-demand", 59)
async def test_what_only_one_model_can_read_is_kept_exactly_and_hidden_from_others() -> None:
    seen: list[ModelCall] = []
    models = [bound_to("a/one", seen), bound_to("b/two", seen)]
    agent = Agent("shop", instructions="Help.")
    async with Harness(agent, providers=models, default_model="a/one") as harness:
        session = await harness.get_or_create("s")
        await session.send("one")
        await session.send("two", model="b/two")
        await session.send("three")
        completed = [e.json() for e in await session.events(kinds=("message.completed",))]
    mine = [{"signature": "of a/one", "n": 0.1}]
    assert [m["parts"] for m in completed] == [mine, [{"signature": "of b/two", "n": 0.1}], mine]
    shown = [[m.bound for m in call.messages if isinstance(m, FromModel)] for call in seen]
    assert shown == [[], [()], [tuple(mine), ()]]
