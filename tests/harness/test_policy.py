"""Whether a call may be made: every combination of what has a say in it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from holdfast import Agent, Harness, InvalidValue, Mode, tool
from holdfast.harness.loop.policy import allowed
from holdfast.models import Say, ScriptedModel, Use
from holdfast.state import Grants, Rules

OWN = ("auto", "ask", "deny")
MODES = ("auto", "ask", "deny", "tool")
RULES = (None, "allow", "ask", "deny")
GRANTS = (Grants(), Grants("d", ("t",)), Grants("d", (), ("c",)))
ALL = list(itertools.product(OWN, MODES, RULES, RULES, GRANTS))


def decided(own: Any, mode: Any, of_tool: Any, of_category: Any, grants: Grants) -> Any:
    rules = Rules({"t": of_tool} if of_tool else {}, {"c": of_category} if of_category else {})
    return allowed(own, mode, tool="t", category="c", rules=rules, grants=grants)


@pytest.mark.parity("harness-kernel", 88)
@pytest.mark.parity("mastra-session", 47, 48)
def test_an_explicit_no_always_wins() -> None:
    for own, mode, of_tool, of_category, grants in ALL:
        said = decided(own, mode, of_tool, of_category, grants)[0]
        assert (said == "deny") == ("deny" in (own, mode, of_tool, of_category))


@pytest.mark.parity("harness-kernel", 88)
def test_then_the_first_in_order_counts() -> None:
    for own, mode, of_tool, of_category, grants in ALL:
        if "deny" in (own, mode, of_tool, of_category):
            continue
        granted = "allow" if grants.driver else None
        order = [of_tool, granted, of_category, {"auto": "allow", "ask": "ask"}.get(mode)]
        first = next((said for said in order if said), {"auto": "allow"}.get(own, own))
        expected = "auto" if first == "allow" else first
        assert decided(own, mode, of_tool, of_category, grants)[0] == expected


def test_a_tool_without_a_category_is_no_category() -> None:
    rules, grants = Rules({}, {"": "deny"}), Grants("d", (), ("",))
    assert allowed("ask", "tool", tool="t", rules=Rules(), grants=grants) == ("ask", "tool")
    assert allowed("auto", "tool", tool="t", rules=rules)[0] == "deny"  # nobody can set such a rule


# In a session


def shop() -> tuple[Agent, list[str]]:
    made: list[str] = []

    @tool(category="payments", approval="ask")
    async def refund(order: str) -> str:
        """Refund an order."""
        made.append(order)
        return "refunded"

    return Agent("shop", instructions="Help.", tools=[refund], modes=[Mode("one")]), made


MODEL: list[Any] = [Say("", calls=[Use("refund", order="42")]), "Done."]


@pytest.mark.parity("mastra-session", 49, 50, 51)
async def test_a_grant_holds_for_the_driver_and_ends_with_it() -> None:
    from holdfast.stores import connect

    agent, made = shop()
    async with connect("memory:") as store:
        settings: dict[str, Any] = {"store": store}
        model = ScriptedModel(MODEL, per_turn=True)
        async with Harness(agent, default_model=model, **settings) as harness:
            session = await harness.get_or_create("s")
            assert (await session.send("one")).status == "waiting"
            await session.permissions.grant(category="payments")
            await session.approve()
            assert (await session.wait()).status == "done"
            assert (await session.send("two")).status == "done"
            assert len(made) == 2
            await session.permissions.revoke(category="payments")
            assert (await session.send("three")).status == "waiting"
            await session.permissions.grant(tool="refund")
            await session.abort()
            await session.wait()
            assert (await session.send("four")).status == "done"
        async with Harness(agent, default_model=model, **settings) as harness:
            session = await harness.get_or_create("s")
            assert (await session.send("five")).status == "waiting"
            assert session.permissions.grants == Grants()


async def test_a_rule_belongs_to_the_session_and_lasts() -> None:
    agent, made = shop()
    async with Harness(agent, default_model=ScriptedModel(MODEL, per_turn=True)) as harness:
        session = await harness.get_or_create("s")
        await session.permissions.set(tool="refund", rule="allow")
        assert (await session.send("one")).status == "done"
        await session.permissions.set(category="payments", rule="deny")
        other = await harness.get_or_create("s", thread="other")
        result = await other.send("two")
        assert (result.status, made) == ("done", ["42"])
        await session.permissions.set(category="payments", rule=None)
        assert (await other.send("three")).status == "done"
        assert made == ["42", "42"]
        with pytest.raises(InvalidValue, match="pass exactly one of the two"):
            await session.permissions.set(rule="deny")
