"""Skills: a registry, activation in the user state, soft gates, prompts and events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from holdfast.errors import InvalidValue
from holdfast.harness.tools import BadArguments, Tool, ToolContext, ToolResult, tool
from holdfast.harness.tools.skills import Skill, Skills

from .context import Context

pytestmark = pytest.mark.parity("harness-kernel", 146)


@tool(approval="ask", risk="write")
def refund(order: str, ctx: ToolContext) -> str:
    """Pay an order back."""
    return f"{order} paid back with {ctx.key}"


@tool
async def search(query: str) -> list[str]:
    """Search the shop."""
    return [query]


def shop() -> Skills:
    return Skills(
        [
            Skill("refunds", "Pay orders back.", "Never pay back twice.", (refund,)),
            Skill("catalog", "Find things.", tools=(search,)),
            Skill("manners", "Be polite.", "Say please."),
        ]
    )


def named(skills: Skills, name: str) -> Tool:
    [found] = [one for one in skills.tools if one.name == name]
    return found


async def use(skills: Skills, context: Context, name: str, **arguments: Any) -> ToolResult:
    subject = named(skills, name)
    return await subject.call(subject.parse(arguments), context)


def test_all_names_that_come_twice_are_told() -> None:
    other = tool(lambda: "", name="list_skills")
    with pytest.raises(InvalidValue) as refused:
        Skills(
            [
                Skill("a", "", tools=(refund, search)),
                Skill("a", "", tools=(refund,)),
                Skill("b", "", tools=(other,)),
            ]
        )
    for words in ("key 'a' is used 2", "tool 'refund' is used 2", "tool 'list_skills' is used 2"):
        assert words in refused.value.problem
    assert "search" not in refused.value.problem


def test_the_tools_are_the_control_tools_and_those_of_all_skills() -> None:
    names = [one.name for one in shop().tools]
    assert names == ["activate_skill", "deactivate_skill", "list_skills", "refund", "search"]


def test_a_gated_tool_declares_what_it_did() -> None:
    gated = named(shop(), "refund")
    assert gated.manifest == refund.manifest
    with pytest.raises(BadArguments):
        gated.parse({"order": 1})


async def test_until_its_skill_is_active_a_tool_only_says_how_to_activate_it() -> None:
    skills, context = shop(), Context()
    result = await use(skills, context, "refund", order="o1")
    assert (result.failed, result.code) == (False, "skill_required")
    assert "activate_skill" in result.content
    assert result.data == {"skill": "refunds", "tool": "refund"}
    assert context.events == [("skill.required", {"skill": "refunds", "tool": "refund"})]


async def test_an_active_skill_has_its_tools_and_its_prompt() -> None:
    skills, context = shop(), Context({"other": 1})
    result = await use(skills, context, "activate_skill", skill="refunds")
    assert "Never pay back twice." in result.content
    assert "refund" in result.content
    assert context.state == {"other": 1, "skills": ["refunds"]}
    assert (await use(skills, context, "refund", order="o1")).content == "o1 paid back with key-1"
    assert (await use(skills, context, "search", query="tea")).code == "skill_required"
    assert context.events == [
        ("skill.activated", {"skill": "refunds"}),
        ("skill.required", {"skill": "catalog", "tool": "search"}),
    ]


async def test_a_skill_can_be_laid_down() -> None:
    skills, context = shop(), Context({"skills": ["refunds", "manners"]})
    await use(skills, context, "deactivate_skill", skill="refunds")
    await use(skills, context, "deactivate_skill", skill="refunds")
    assert context.state == {"skills": ["manners"]}
    assert context.events == [("skill.deactivated", {"skill": "refunds"})]
    assert (await use(skills, context, "refund", order="o1")).code == "skill_required"


async def test_activating_twice_happens_once() -> None:
    skills, context = shop(), Context()
    for _ in range(2):
        await use(skills, context, "activate_skill", skill="manners")
    assert context.state == {"skills": ["manners"]}
    assert context.events == [("skill.activated", {"skill": "manners"})]


async def test_activations_at_once_are_all_kept() -> None:
    skills, context = shop(), Context()
    keys = ["refunds", "catalog", "manners"]
    await asyncio.gather(*(use(skills, context, "activate_skill", skill=key) for key in keys))
    assert sorted(context.state["skills"]) == sorted(keys)


async def test_activation_survives_in_the_state() -> None:
    context = Context()
    await use(shop(), context, "activate_skill", skill="catalog")
    kept = json.loads(json.dumps(context.state))
    assert (await use(shop(), Context(kept), "search", query="tea")).data == ["tea"]


@pytest.mark.parametrize("control", ["activate_skill", "deactivate_skill"])
async def test_an_unknown_skill_is_a_failure_that_names_the_known(control: str) -> None:
    context = Context()
    result = await use(shop(), context, control, skill="cooking")
    assert (result.failed, result.code) == (True, "unknown_skill")
    assert "refunds, catalog, manners" in result.content
    assert (context.state, context.events) == ({}, [])


async def test_the_list_says_what_is_active() -> None:
    result = await use(shop(), Context({"skills": ["manners"]}), "list_skills")
    assert [(one["skill"], one["active"], one["tools"]) for one in result.data] == [
        ("refunds", False, ["refund"]),
        ("catalog", False, ["search"]),
        ("manners", True, []),
    ]


def test_the_model_is_told_the_catalog_and_the_active_prompts() -> None:
    skills = shop()
    quiet = skills.render({})
    assert "- refunds: Pay orders back." in quiet
    assert "Never pay back twice." not in quiet
    told = skills.render({"skills": ["manners", "gone", "refunds", "catalog"]})
    assert "- refunds (active): Pay orders back." in told
    assert told.index("Say please.") < told.index("Never pay back twice.")
    assert "gone" not in told
    assert Skills([]).render({}) == ""


@pytest.mark.parametrize("state", [{"skills": None}, {"skills": "refunds"}, {"skills": {"a": 1}}])
def test_a_state_of_another_form_activates_nothing(state: dict[str, Any]) -> None:
    assert shop().active(state) == []
