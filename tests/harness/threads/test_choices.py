"""Modes and models: which follows which, and which model speaks where."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Harness, InvalidAgent, InvalidValue, Mode, ToolContext, tool
from holdfast.models.scripted import Say, ScriptedModel, Use

from ..kernel.scene import helper, kinds, only, script, serve


def voices(*names: str) -> list[ScriptedModel]:
    """Models that say their own name."""
    return [script(name, ref=f"{name}/m") for name in names]


MODELS = ("a", "b", "c", "d")


def hosted(agent: Agent, **settings: Any) -> Harness:
    return Harness(agent, providers=voices(*MODELS), default_model="a/m", **settings)


@pytest.mark.parity("mastra-session", 23, 24)
@pytest.mark.parametrize(
    ("modes", "fault"),
    [
        ([Mode("one"), Mode("one")], "mode 'one' is declared twice"),
        ([Mode("one", transitions=["one"])], "transition 'one' is not the name of another mode"),
        ([Mode("one", transitions=["two"])], "transition 'two' is not the name of another mode"),
        (
            [Mode("one", transitions=["two"], after_plan="three"), Mode("two"), Mode("three")],
            "after_plan 'three' is not in its transitions",
        ),
    ],
)
def test_modes_that_cannot_be_are_refused_at_once(modes: list[Mode], fault: str) -> None:
    with pytest.raises(InvalidAgent, match=fault):
        serve(helper(modes=modes), "hi")


@pytest.mark.parity("mastra-session", 26)
async def test_a_mode_is_known_by_its_name() -> None:
    modes = [Mode("one"), Mode("two", label="Two", transitions=["one"])]
    async with serve(helper(modes=modes), "hi") as harness:
        session = await harness.get_or_create("s")
        assert session.mode.resolve().name == "one"
        two = session.mode.resolve("two")
        assert (two.name, two.label, two.transitions) == ("two", "Two", ["one"])
        with pytest.raises(InvalidValue, match="one, two"):
            session.mode.resolve("three")
        described = {mode["name"]: mode.get("transitions") for mode in harness.manifest["modes"]}
        assert described == {"one": None, "two": ["one"]}


@pytest.mark.parity("mastra-session", 30)
async def test_only_a_mode_that_follows_is_switched_to() -> None:
    modes = [Mode("plan", transitions=["build"]), Mode("build"), Mode("end", transitions=[])]
    async with serve(helper(modes=modes), "hi") as harness:
        session = await harness.get_or_create("s")
        before = await session.events()
        with pytest.raises(InvalidValue, match=r"allowed transitions \(build\)"):
            await session.mode.switch("end")
        with pytest.raises(InvalidValue, match="'nowhere' does not exist"):
            await session.mode.switch("nowhere")
        assert not await session.mode.switch("plan")
        assert (session.mode.name, await session.events()) == ("plan", before)
        assert await session.mode.switch("build")
        assert await session.mode.switch("end")
        with pytest.raises(InvalidValue, match=r"allowed transitions \(none\)"):
            await session.mode.switch("plan")
        changes = only(await session.events(), "mode.changed")
        assert changes == [{"mode": "build", "left": "plan"}, {"mode": "end", "left": "build"}]


async def test_tools_are_held_to_the_same_transitions() -> None:
    @tool
    async def go(context: ToolContext, mode: str) -> str:
        """Go."""
        await context.switch_mode(mode)  # type: ignore[attr-defined]
        return "gone"

    modes = [Mode("plan", transitions=["build"]), Mode("build"), Mode("end")]
    steps = Say(calls=[Use("go", mode="end")]), Say(calls=[Use("go", mode="build")]), "ok"
    async with serve(helper(modes=modes, tools=[go]), *steps) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        outcomes = [e.get("outcome", "ok") for e in only(await session.events(), "tool.finished")]
        assert outcomes == ["failed", "ok"]
        assert session.mode.name == "build"


async def test_of_two_switches_at_once_no_one_makes_a_step_that_is_not_allowed(
    tmp_path: Path,
) -> None:
    """From `a` to `b` and to `c` at once: there is no way from the one to the other."""
    storage = f"sqlite:{tmp_path}/x.db"
    modes = [Mode("a"), Mode("b", transitions=[]), Mode("c", transitions=[])]
    async with (
        serve(helper(modes=modes), "hi", store=storage) as one,
        serve(helper(modes=modes), "hi", store=storage) as two,
    ):
        here, there = await one.get_or_create("s"), await two.get_or_create("s")
        done = await asyncio.gather(
            here.mode.switch("b"), there.mode.switch("c"), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in done) == ["InvalidValue", "bool"]
        assert len(only(await here.events(), "mode.changed")) == 1


@pytest.mark.parity("mastra-session", 28, 34)
async def test_a_mode_that_is_come_back_to_has_the_model_that_was_chosen_there(
    tmp_path: Path,
) -> None:
    agent = helper(modes=[Mode("one"), Mode("two", model="b/m"), Mode("three")])
    storage = f"sqlite:{tmp_path}/x.db"
    async with hosted(agent, store=storage) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("hi")).text == "a"
        await session.model.set("c/m")
        await session.mode.switch("two")
        assert (await session.send("hi")).text == "b"  # the mode's own
        await session.model.set("d/m")
        assert (await session.send("hi")).text == "d"
        await session.mode.switch("one")
        assert (await session.send("hi")).text == "c"
        await session.mode.switch("two")
        assert (await session.send("hi")).text == "d"
        await session.mode.switch("three")  # neither chosen nor its own: the latest choice
        assert (await session.send("hi")).text == "d"
        await session.mode.switch("two")
    async with hosted(agent, store=storage) as harness:
        session = await harness.get_or_create("s")
        assert (session.mode.name, session.model.ref) == ("two", "d/m")
        await session.mode.switch("one")
        assert session.model.ref == session.model.chosen == "c/m"
        await session.model.clear()
        await session.mode.switch("two")
        assert session.model.ref == "d/m"
        await session.mode.switch("one")
        assert session.model.ref == "a/m"


@pytest.mark.parity("mastra-session", 33)
async def test_chosen_here_then_the_modes_own_then_chosen_elsewhere() -> None:
    agent = helper(modes=[Mode("one"), Mode("two", model="b/m")])
    async with hosted(agent) as harness:
        first = await harness.get_or_create("1")
        await first.model.set("d/m", mode="two")
        await first.model.set("c/m")
        await first.mode.switch("two")
        assert first.model.ref == "d/m"
        second = await harness.get_or_create("2")
        await second.model.set("c/m")
        await second.mode.switch("two")
        assert second.model.ref == "b/m"
        third = await harness.get_or_create("3")
        await third.mode.switch("two")
        await third.model.set("c/m")
        await third.mode.switch("one")
        assert third.model.ref == "c/m"


@pytest.mark.parity("mastra-session", 36)
async def test_a_choice_for_another_mode_changes_nothing_here() -> None:
    async with hosted(helper(modes=[Mode("one"), Mode("two")])) as harness:
        session = await harness.get_or_create("s")
        assert await session.model.set("b/m", mode="two")
        assert (session.model.ref, session.model.chosen) == ("a/m", None)
        assert (await session.send("hi")).text == "a"
        await session.mode.switch("two")
        assert (await session.send("hi")).text == "b"
        assert await session.model.clear(mode="two")
        assert session.model.ref == "a/m"
        with pytest.raises(InvalidValue, match="mode"):
            await session.model.set("b/m", mode="three")


@pytest.mark.parity("mastra-session", 39)
async def test_what_changes_nothing_is_no_event() -> None:
    async with hosted(helper(modes=[Mode("one"), Mode("two")])) as harness:
        session = await harness.get_or_create("s")
        assert not await session.model.clear()
        assert await session.model.set("b/m")
        assert not await session.model.set("b/m")
        assert not await session.model.set("b/m", mode="one")
        assert not await session.mode.switch("one")
        assert await session.model.clear()
        assert not await session.model.clear()
        assert (await kinds(session)).count("model.changed") == 2
        assert "mode.changed" not in await kinds(session)


@pytest.mark.parity("mastra-session", 29)
async def test_a_switch_that_was_overtaken_leaves_no_trace_of_its_model() -> None:
    agent = helper(modes=[Mode("one"), Mode("two", model="b/m"), Mode("three", model="c/m")])
    async with hosted(agent) as harness:
        session = await harness.get_or_create("s")
        await asyncio.gather(session.mode.switch("two"), session.mode.switch("three"))
        last = only(await session.events(), "mode.changed")[-1]["mode"]
        assert session.mode.name == last
        assert session.model.ref == {"two": "b/m", "three": "c/m"}[last]
        assert "model.changed" not in await kinds(session)


@pytest.mark.parity("mastra-session", 31)
async def test_mode_and_model_of_each_thread_are_there_after_a_restart(tmp_path: Path) -> None:
    agent, storage = helper(modes=[Mode("one"), Mode("two")]), f"sqlite:{tmp_path}/x.db"
    async with hosted(agent, store=storage) as harness:
        main = await harness.get_or_create("s")
        side = await harness.get_or_create("s", thread="side")
        await side.mode.switch("two")
        await side.model.set("b/m")
        await main.model.set("c/m")
    async with hosted(agent, store=storage) as harness:
        main = await harness.get_or_create("s")
        side = await main.thread.switch("side")
        assert (main.mode.name, main.model.ref) == ("one", "c/m")
        assert (side.mode.name, side.model.ref) == ("two", "b/m")
        await side.mode.switch("one")
        last = only(await side.events(), "mode.changed")[-1]
        assert (last["left"], last["mode"]) == ("two", "one")


@pytest.mark.parity("mastra-session", 32)
async def test_a_mode_that_the_agent_has_no_more_is_the_first(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    async with hosted(helper(modes=[Mode("one"), Mode("old")]), store=storage) as harness:
        session = await harness.get_or_create("s")
        await session.model.set("b/m")
        await session.mode.switch("old")
        await session.model.set("c/m")
    async with hosted(helper(modes=[Mode("one"), Mode("new")]), store=storage) as harness:
        session = await harness.get_or_create("s")
        assert (session.mode.name, session.model.ref) == ("one", "b/m")
        assert (await session.send("hi")).text == "b"
        assert await session.mode.switch("new")


@pytest.mark.parity("mastra-session", 38)
async def test_a_choice_made_in_another_process_is_that_of_the_next_run(tmp_path: Path) -> None:
    agent, storage = helper(modes=[Mode("one"), Mode("two")]), f"sqlite:{tmp_path}/x.db"
    async with (
        hosted(agent, store=storage) as one,
        hosted(agent, store=storage, recovery="leave") as two,
    ):
        here = await one.get_or_create("s")
        await here.send("hi")
        there = await two.get_or_create("s")
        await there.mode.switch("two")
        await there.model.set("b/m")
        result = await here.send("hi")
        assert (result.text, result.mode) == ("b", "two")


@pytest.mark.parity("mastra-session", 40)
async def test_a_model_is_shown_by_the_end_of_its_name() -> None:
    models = [script("hi", ref="vendor/family/large"), script("hi", ref="a/m")]
    async with Harness(helper(), providers=models, default_model="a/m") as harness:
        session = await harness.get_or_create("s")
        assert session.model.display_name == "m"
        await session.model.set("vendor/family/large")
        assert session.model.display_name == "large"


@pytest.mark.parity("mastra-session", 41, 42, 43, 45)
async def test_a_mode_adds_to_the_agent_and_leaves_it_as_it_was() -> None:
    @tool
    async def mine() -> str:
        """Mine."""
        return "ok"

    modes = [Mode("bare"), Mode("rich", instructions="Richly.", tools=[mine])]
    agent, model = helper(modes=modes), script("hi")
    before = agent.manifest
    async with serve(agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("1")
        await session.mode.switch("rich")
        await session.send("2")
        await session.mode.switch("bare")
        await session.send("3")
    assert [call.system for call in model.calls] == ["Help.", "Help.\n\nRichly.", "Help."]
    assert [[t.name for t in call.tools] for call in model.calls] == [[], ["mine"], []]
    assert agent.manifest == before


@pytest.mark.parity("mastra-session", 44)
async def test_a_tool_of_another_mode_is_neither_shown_nor_carried_out() -> None:
    ran: list[str] = []

    @tool
    async def hidden() -> str:
        """Hidden."""
        ran.append("hidden")
        return "ok"

    model = script(Say(calls=[Use("hidden")]), "ok")
    agent = helper(modes=[Mode("bare"), Mode("rich", tools=[hidden])])
    async with serve(agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        finished = only(await session.events(), "tool.finished")
        assert (ran, finished[0]["code"]) == ([], "no_such_tool")


@pytest.mark.parity("mastra-session", 46)
async def test_a_model_is_not_told_of_what_a_rule_denies_and_cannot_call_it() -> None:
    ran: list[str] = []

    def made(name: str, category: str | None) -> Any:
        async def act() -> str:
            ran.append(name)
            return "ok"

        return tool(act, name=name, description=name, category=category)

    tools = [made("read", "files"), made("write", "files"), made("pay", "money")]
    calls = Say(calls=[Use("read"), Use("write"), Use("pay")])
    model = script(calls, "ok")
    async with serve(helper(tools=tools), default_model=model) as harness:
        session = await harness.get_or_create("s")
        side = await session.thread.create(id="side")
        await session.permissions.set(tool="write", rule="deny")
        await session.permissions.set(category="money", rule="deny")
        for each in (session, side):
            ran.clear()
            await each.send("go")
            assert ran == ["read"]
            assert [spec.name for spec in model.calls[-2].tools] == ["read"]
        await session.permissions.set(tool="write", rule=None)
        await session.permissions.set(category="money", rule="allow")
        await session.send("go")
        assert {spec.name for spec in model.calls[-1].tools} == {"read", "write", "pay"}
        assert sorted(ran) == ["pay", "read", "read", "write"]
