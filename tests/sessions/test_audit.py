"""What was done in a session and by whose leave, without a word of what a model said."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import Harness, SessionNotFound, Sessions, Store, tool
from holdfast.models.scripted import Say, ScriptedModel, Step, Use
from holdfast.sessions import Audited
from tests.harness.kernel.scene import helper, serve
from tests.harness.subagents.scene import GO, lead, plays, sent

from .scene import Clock

CANARY = "words of a model"


@tool(approval="ask")
async def pay(order: str, cents: int = 100) -> str:
    """Pay."""
    return f"paid {cents} for {order}"


@tool(approval="deny")
async def wipe() -> str:
    """Never."""
    raise AssertionError("a denied tool ran")


@tool
async def look(order: str) -> str:
    """Look."""
    raise RuntimeError("not found")


async def calls_of(store: Store, id: str = "s") -> list[Audited]:
    return [call async for call in Sessions(store).audit(id)]


@pytest.mark.parity("user-demand", 66)
async def test_each_call_says_who_asked_what_was_proposed_who_decided_and_what_came_out(
    store: Store,
) -> None:
    first = [Use("pay", order="1"), Use("pay", order="2"), Use("wipe"), Use("look", order="3")]
    steps: list[Step] = [Say(CANARY, thought=CANARY, calls=first), CANARY]
    agent = helper(tools=[pay, wipe, look])
    async with serve(agent, default_model=ScriptedModel(steps), store=store) as harness:
        session = await harness.get_or_create("s")
        waiting = await session.send("Pay both.", actor="ann")
        one, two = waiting.pending
        await session.approve(one.id, arguments={"order": "1", "cents": 5}, actor="ben")
        await session.deny(two.id, "too much", actor="cat")
        await session.wait()
    paid, denied, wiped, looked = await calls_of(store)
    assert {tuple(call.asked) for call in (paid, denied, wiped, looked)} == {("ann",)}
    assert (paid.tool, paid.arguments, paid.model) == ("pay", {"order": "1"}, "scripted/demo")
    (decision,) = paid.decisions
    assert (decision.item, decision.what, decision.outcome) == (one.id, "approval", "approved")
    assert (decision.by, paid.allowed_by) == ("ben", one.id)
    assert paid.changed == {"order": "1", "cents": 5}
    assert (paid.outcome, paid.result) == ("ok", "paid 5 for 1")
    assert paid.started is not None
    assert paid.ended is not None
    assert paid.proposed <= decision.at <= paid.started <= paid.ended
    assert [(d.by, d.outcome, d.reason) for d in denied.decisions] == [
        ("cat", "denied", "too much")
    ]
    assert (denied.outcome, denied.started) == ("denied", None)
    assert (wiped.outcome, wiped.decisions, wiped.started) == ("denied", [], None)
    assert (looked.outcome, looked.decisions) == ("failed", [])
    assert looked.code == "tool_failed"
    assert CANARY.encode() not in msgspec.json.encode([paid, denied, wiped, looked])


@pytest.mark.parity("user-demand", 66)
async def test_what_is_open_is_told_as_far_as_it_has_come(store: Store) -> None:
    agent = helper(tools=[pay])
    model = ScriptedModel([Say(calls=[Use("pay", order="1")]), "ok"])
    async with serve(agent, default_model=model, store=store) as harness:
        await harness.send("s", "Pay.", actor="ann")
    (call,) = await calls_of(store)
    assert (call.asked, call.decisions, call.started, call.outcome) == (["ann"], [], None, None)


@pytest.mark.parity("user-demand", 66)
async def test_calls_of_sub_agents_and_forks_are_told_once(store: Store) -> None:
    async with Harness(lead(), default_model=plays(GO), store=store) as harness:
        session, _ = await sent(harness)
        await session.threads.fork(thread="fork")
        made = [call.id for message in await session.transcript() for call in message.calls]
    found = await calls_of(store)
    assert len({call.call for call in found}) == len(found)
    assert made
    assert {*made} <= {call.call for call in found}
    assert "fork" not in {call.thread for call in found}


async def test_a_session_that_is_not_there_is_named(store: Store, clock: Clock) -> None:
    with pytest.raises(SessionNotFound, match="nobody"):
        await calls_of(store, "nobody")
