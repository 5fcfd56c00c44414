"""Sub-agents with instructions and tools of their own."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Agent, Harness, InvalidAgent, InvalidValue, Mode, NotPending, SubAgent, tool
from holdfast.errors import HarnessClosed, ModelError
from holdfast.events import Event
from holdfast.harness.builtins import ask_user
from holdfast.harness.session.session import core_of
from holdfast.harness.tools.files import read_file
from holdfast.models.scripted import Fail, Say, ScriptedModel, Step, Use
from holdfast.stores.measure import threads_of
from holdfast.values.delta import Delta
from holdfast.values.watch import delegates

from ..kernel.scene import PATIENCE, Gate, Slow, until
from .scene import (
    ASKING,
    GO,
    asked_as,
    child,
    hand,
    kinds,
    lead,
    look,
    outcome,
    paint,
    plays,
    scout,
    sent,
    told,
)


@pytest.mark.parity("user-demand", 78)
@pytest.mark.parity("mastra-session", 157)
async def test_a_task_is_done_in_a_thread_of_its_own() -> None:
    model = plays(GO)
    async with Harness(lead(), default_model=model) as harness:
        session, result = await sent(harness)
        assert (result.status, result.text) == ("done", "All is well.")
        made = await outcome(session)
        assert (made["result"], made.get("outcome", "ok")) == ("The sky is blue.", "ok")
        assert made["metadata"]["usage"] == {"input_tokens": 30}
        assert made["metadata"]["status"] == "done"
        thread = await child(session)
        assert made["metadata"]["thread"] == thread.key.thread
        assert [m.text for m in await thread.transcript()] == ["Find it.", "", "The sky is blue."]
        row = await harness.store.row(thread.key)
        assert row is not None
        assert row.parent is not None
        assert (row.agent, row.parent.thread, row.due) == ("lead/scout", "main", None)
        # The parent's own conversation holds nothing of the sub-agent's.
        assert "Find it." not in [m.text for m in await session.transcript()]
    told = asked_as(model, "Scout.")[0]
    assert [spec.name for spec in told.tools] == ["look", "paint"]


@pytest.mark.parity("mastra-session", 157, 158)
async def test_a_sub_agent_sees_its_own_tools_and_those_it_was_given_by_name() -> None:
    @tool(name="look")
    def look_closer(what: str) -> str:
        """Look closer."""
        return f"{what} is azure"

    own = Agent("Looker", instructions="Look.", tools=[look_closer])
    sub = SubAgent("scout", "looks", agent=own, tools=["look", "paint"])
    model = plays({**GO, "Find it.": [Say(calls=[Use("look", what="sky")]), "Seen."]})
    agent = lead(sub, tools=[look, paint, ask_user, read_file])
    async with Harness(agent, default_model=model) as harness:
        session, _ = await sent(harness)
        events = await (await child(session)).events(kinds=("tool.finished",))
        assert events[0].json()["result"] == "sky is azure"  # its own tool wins
    shown = [spec.name for spec in asked_as(model, "Look.")[0].tools]
    assert shown == ["look", "paint"]


async def test_a_tool_that_was_not_given_is_not_there() -> None:
    calls: list[Step] = [Say(calls=[Use("paint", what="sky")]), "I cannot."]
    model = plays({**GO, "Find it.": calls})
    async with Harness(lead(scout(tools=["look"])), default_model=model) as harness:
        session, result = await sent(harness)
        assert result.status == "done"
        refused = (await (await child(session)).events(kinds=("tool.finished",)))[0].json()
        assert (refused["outcome"], refused["code"]) == ("failed", "no_such_tool")


async def test_an_unknown_sub_agent_is_refused_in_words() -> None:
    model = plays({"Go.": [Say(calls=[hand("Find it.", agent="nobody")]), "A pity."]})
    async with Harness(lead(), default_model=model) as harness:
        session, result = await sent(harness)
        assert result.text == "A pity."
        refused = await outcome(session)
        assert (refused["outcome"], refused["code"]) == ("failed", "bad_arguments")
        assert "nobody" in refused["content"]
        assert await session.subagents.list() == []


@pytest.mark.parity("mastra-session", 156)
async def test_the_model_is_that_of_the_call_the_sub_agent_the_parent() -> None:
    first = plays({"Go.": [Say(calls=[hand("A"), hand("B", model="three/m")]), "Well."]})
    parts = {"A": "a", "B": "b", "C": "c"}
    two, three = plays(parts, ref="two/m"), plays(parts, ref="three/m")
    one = plays(
        {
            "Go.": [
                Say(calls=[hand("A"), hand("B", model="three/m"), hand("C", agent="plain")]),
                "Well.",
            ],
            **parts,
        },
        ref="one/m",
    )
    plain = SubAgent("plain", "has no model", instructions="Plain.")
    agent = lead(scout(model="two/m"), plain, model="one/m")
    async with Harness(agent, providers=[one, two, three], default_model=first) as harness:
        session, result = await sent(harness)
        assert result.status == "done", result
        used = {}
        for each in await session.subagents.list():
            thread = await session.subagents.open(each.thread)
            [called] = await thread.events(kinds=("model.called",))
            used[each.title] = called.json()["model"]
    assert used == {"scout: A": "two/m", "scout: B": "three/m", "plain: C": "one/m"}


@pytest.mark.parity("mastra-session", 156)
async def test_the_model_that_the_session_chose_comes_before_the_sub_agents_own() -> None:
    parts = {"A": "a", "B": "b"}
    two, three, four = (plays(parts, ref=f"{name}/m") for name in ("two", "three", "four"))
    one = plays({"Go.": [Say(calls=[hand("A"), hand("B", agent="plain")]), "Well."]}, ref="one/m")
    plain = SubAgent("plain", "has no model", instructions="Plain.")
    agent = lead(scout(model="two/m"), plain)
    models = [two, three, four]
    used: list[dict[str, str | None]] = []
    async with Harness(agent, providers=models, default_model=one) as harness:
        session = await harness.get_or_create("s")
        await session.subagents.set_model("three/m")
        await session.subagents.set_model("four/m", "scout")
        with pytest.raises(InvalidValue):
            await session.subagents.set_model("four/m", "nobody")
        for _ in range(2):
            session, _ = await sent(harness)
            begun = [await child(session, n) for n in range(len(used) * 2, len(used) * 2 + 2)]
            texts = [(await thread.transcript())[-1] for thread in begun]
            used.append({m.text: m.model for m in texts})
            await session.subagents.set_model(None, "scout")
        assert session.subagents.model("scout") == "three/m"
    assert used == [{"a": "four/m", "b": "three/m"}, {"a": "three/m", "b": "three/m"}]


async def test_a_model_that_is_not_there_is_refused_in_words() -> None:
    model = plays({"Go.": [Say(calls=[hand("A", model="scripted/other")]), "A pity."]})
    async with Harness(lead(), default_model=model) as harness:
        session, result = await sent(harness)
        assert result.text == "A pity."
        refused = await outcome(session)
        assert refused["outcome"] == "failed"
        assert "scripted/other" in refused["content"]
        assert await session.subagents.list() == []


async def test_two_work_at_once() -> None:
    gates = {"A": Gate(), "B": Gate()}

    @tool
    async def meet(who: str) -> str:
        """Wait until both are here."""
        await gates[who].pass_through()
        return who

    parts: dict[str, list[Step]] = {
        n: [Say(calls=[Use("meet", who=n)]), f"{n} is done."] for n in gates
    }
    model = plays({"Go.": [Say(calls=[hand("A"), hand("B")]), "Both."], **parts})
    agent = lead(scout(tools=["meet"]), tools=[meet])
    async with Harness(agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("Go."))
        await gates["A"].someone()
        await gates["B"].someone()
        assert len(session.subagents.working) == 2
        assert session.status.phase == "running_tool"
        gates["B"].open()
        await until(lambda: len(session.subagents.working) == 1)
        gates["A"].open()
        async with asyncio.timeout(PATIENCE):
            assert (await sending).text == "Both."
        ended = [e.json()["result"] for e in await session.events(kinds=("tool.finished",))]
        assert sorted(ended) == ["A is done.", "B is done."]


@pytest.mark.parity("mastra-session", 164)
async def test_what_a_sub_agent_asks_is_answered_at_the_parent() -> None:
    async with Harness(lead(), default_model=plays(ASKING)) as harness:
        session, result = await sent(harness)
        assert result.status == "waiting"
        [ask] = result.pending
        assert (ask.tool, ask.what) == ("paint", "approval")
        assert ask.thread == (await session.subagents.list())[0].thread
        assert await session.pending() == [ask]
        inbox = await harness.pending(what="approval")
        assert [(item.id, item.thread) for item in inbox.items] == [(ask.id, ask.thread)]
        with pytest.raises(InvalidValue, match=r"arguments\.brush"):
            await session.approve(ask.id, arguments={**ask.arguments, "brush": 1})
        await session.approve(ask.id, actor="ann")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).text == "All is well."
        assert (await outcome(session))["result"] == "It is painted."


@pytest.mark.parametrize("by_id", [True, False])
async def test_it_is_answered_by_the_id_of_the_session_too(by_id: bool) -> None:
    async with Harness(lead(), default_model=plays(ASKING)) as harness:
        session, result = await sent(harness)
        item = result.pending[0].id if by_id else None
        await harness.deny("s", item, reason="not that")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "done"
        denied = (await (await child(session)).events(kinds=("tool.finished",)))[0].json()
        assert (denied["outcome"], denied["error"]) == ("denied", "not that")
        with pytest.raises(NotPending):
            await session.approve()


async def test_a_question_of_a_sub_agent_comes_up_and_its_answer_goes_down() -> None:
    model = plays(
        {
            "Go.": [Say(calls=[hand("Ask.")]), "All is well."],
            "Ask.": [Say(calls=[Use("ask_user", question="Which?")]), "Asked."],
        }
    )
    agent = lead(scout(tools=["ask_user"]), tools=[ask_user])
    async with Harness(agent, default_model=model) as harness:
        session, result = await sent(harness)
        assert [ask.title for ask in result.pending] == ["Which?"]
        await session.answer("the left one")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "done"
        said = (await (await child(session)).events(kinds=("tool.finished",)))[0].json()
        assert said["result"] == "the left one"


@pytest.mark.parity("mastra-session", 164)
@pytest.mark.parametrize("rule", ["deny", "allow"])
async def test_rules_of_the_session_hold_in_sub_agents(rule: str) -> None:
    async with Harness(lead(), default_model=plays(ASKING)) as harness:
        session = await harness.get_or_create("s")
        await session.permissions.set(tool="paint", rule=rule)  # type: ignore[arg-type]
        session, result = await sent(harness)
        assert result.status == "done"
        made = (await (await child(session)).events(kinds=("tool.finished",)))[0].json()
        assert made.get("outcome", "ok") == ("denied" if rule == "deny" else "ok")


@pytest.mark.parity("mastra-session", 164)
async def test_what_the_mode_says_about_tools_holds_in_sub_agents() -> None:
    agent = lead(modes=[Mode("careful", approval="ask")])
    async with Harness(agent, default_model=plays(GO)) as harness:
        session, result = await sent(harness)
        assert [ask.tool for ask in result.pending] == ["subagent"]
        await session.approve()
        async with asyncio.timeout(PATIENCE):
            result = await session.wait()
        assert [(ask.tool, ask.thread != "main") for ask in result.pending] == [("look", True)]
        await session.approve()
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "done"


@pytest.mark.parity("mastra-session", 164)
async def test_what_is_granted_is_not_asked_about_in_sub_agents() -> None:
    steps: list[Step] = [
        Say(calls=[Use("paint", what="door")]),
        Say(calls=[hand("Paint it.")]),
        "Well.",
    ]
    model = plays({"Go.": steps, "Paint it.": ASKING["Paint it."]})
    async with Harness(lead(), default_model=model) as harness:
        session, _ = await sent(harness)
        await session.permissions.grant(category="writing")
        await session.approve()
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "done"
        assert "pending.opened" not in kinds(await (await child(session)).events())


@pytest.mark.parity("user-demand", 78)
async def test_a_sub_agent_that_fails_is_told_of_as_such() -> None:
    broken = ModelError(model="m", problem="it broke", status=400)
    model = plays({**GO, "Find it.": [Fail(broken, after="I was")]})
    async with Harness(lead(), default_model=model) as harness:
        session, result = await sent(harness)
        assert result.status == "done"
        made = await outcome(session)
        assert made["outcome"] == "failed"
        assert made["metadata"]["status"] == "failed"
        assert "did not finish (failed)" in made["content"]
        assert "I was" in made["content"]
        assert [each.status for each in await session.subagents.list()] == ["failed"]


async def test_a_sub_agent_has_its_own_number_of_steps() -> None:
    again = Say(calls=[Use("look", what="sky")])
    model = plays({**GO, "Find it.": [again, again, "Done."]})
    async with Harness(lead(scout(steps=2)), default_model=model) as harness:
        session, result = await sent(harness)
        assert result.status == "done"
        made = await outcome(session)
        assert (made["outcome"], made["code"]) == ("failed", "limit_steps")


@pytest.mark.parity("mastra-session", 162)
async def test_a_sub_agent_that_is_stopped_gives_what_it_had_said_and_that_is_no_error() -> None:
    slow = Slow("I have", " found it.")
    model = plays({"Go.": [Say(calls=[hand("Find it.")]), "All is well."]})
    agent = lead(scout(model="slow/model"))
    async with Harness(agent, providers=[slow], default_model=model) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("Go."))
        await slow.gate.someone()
        await (await child(session)).abort("enough")
        async with asyncio.timeout(PATIENCE):
            assert (await sending).text == "All is well."
        made = await outcome(session)
        assert made.get("outcome", "ok") == "ok"
        assert made["metadata"]["status"] == "aborted"
        assert "I have" in made["result"]


async def test_when_the_parent_is_stopped_so_are_its_sub_agents() -> None:
    slow = Slow()
    model = plays({"Go.": [Say(calls=[hand("A"), hand("B")]), "All is well."]})
    agent = lead(scout(model="slow/model"))
    async with Harness(agent, providers=[slow], default_model=model) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("Go."))
        await until(lambda: len(slow.calls) == 2)
        await session.abort("enough")
        async with asyncio.timeout(PATIENCE):
            assert (await sending).status == "aborted"
            for n in range(2):
                thread = await child(session, n)
                assert (await thread.wait()).status == "aborted"
                await told(thread)
        assert await session.pending() == []
        assert core_of(session).live.state.safe
        assert [
            row.due for row in await threads_of(core_of(session).live.store, session.key.scope)
        ] == [None] * 3


async def test_a_message_that_interrupts_the_parent_ends_its_sub_agents() -> None:
    slow = Slow()
    model = plays({**GO, "Stop!": "I stopped."})
    agent = lead(scout(model="slow/model"))
    async with Harness(agent, providers=[slow], default_model=model) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("Go."))
        await slow.gate.someone()
        await until(lambda: core_of(session).live.state.pending)
        async with asyncio.timeout(PATIENCE):
            assert (await session.send("Stop!", busy="interrupt")).text == "I stopped."
            assert (await sending).status == "interrupted"
            assert (await (await child(session)).wait()).status == "aborted"


async def test_a_person_may_stop_a_sub_agent_by_its_item() -> None:
    slow = Slow()
    model = plays({"Go.": [Say(calls=[hand("Find it.")]), "All is well."]})
    agent = lead(scout(model="slow/model"))
    async with Harness(agent, providers=[slow], default_model=model) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("Go."))
        await slow.gate.someone()
        await until(lambda: core_of(session).live.state.pending)
        [item] = core_of(session).live.state.pending
        await session.deny(item, "no need")
        async with asyncio.timeout(PATIENCE):
            assert (await sending).text == "All is well."
            assert (await (await child(session)).wait()).status == "aborted"
        assert (await outcome(session))["result"] == "The sub-agent was stopped. no need"


async def test_a_message_that_steers_waits_for_the_sub_agent() -> None:
    slow = Slow("Found", " it.")
    model = plays({"Go.": [Say(calls=[hand("Find it.")]), "Never."], "Faster.": "I hurry."})
    agent = lead(scout(model="slow/model"))
    async with Harness(agent, providers=[slow], default_model=model) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("Go."))
        await slow.gate.someone()
        await until(lambda: core_of(session).live.state.pending)
        await session.post("Faster.", busy="steer")
        slow.gate.open()
        async with asyncio.timeout(PATIENCE):
            assert (await sending).text == "I hurry."
        assert (await outcome(session))["result"] == "Found it."


async def test_a_message_behind_a_sub_agent_waits_for_its_turn() -> None:
    slow = Slow("Found", " it.")
    model = plays({**GO, "And then?": "Nothing."})
    agent = lead(scout(model="slow/model"))
    async with Harness(agent, providers=[slow], default_model=model) as harness:
        session = await harness.get_or_create("s")
        first = asyncio.create_task(session.send("Go."))
        await slow.gate.someone()
        await until(lambda: core_of(session).live.state.pending)
        second = asyncio.create_task(session.send("And then?"))
        await until(lambda: core_of(session).live.state.queue)
        slow.gate.open()
        async with asyncio.timeout(PATIENCE):
            assert ((await first).text, (await second).text) == ("All is well.", "Nothing.")


@pytest.mark.parity("mastra-session", 163)
async def test_what_a_sub_agent_does_can_be_watched() -> None:
    slow = Slow("Found", " it.")
    model = plays(GO)
    agent = lead(scout(model="slow/model"))
    async with Harness(agent, providers=[slow], default_model=model) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("Go."))
        await slow.gate.someone()
        await until(lambda: core_of(session).live.state.pending)
        thread = await session.subagents.open(session.subagents.working[0])
        seen = []
        slow.gate.open()
        async with asyncio.timeout(PATIENCE):
            async for item in thread.subscribe(after=0):
                seen.append(item)
                if isinstance(item, Event) and item.kind == "thread.reported":
                    break
            await sending
        assert "".join(item.text for item in seen if isinstance(item, Delta)) == "Found it."
        told = kinds([item for item in seen if isinstance(item, Event)])
        assert told[0] == "thread.created"
        assert told[-3:] == ["message.completed", "run.finished", "thread.reported"]
        # In the parent's log stands where it works, and how it ended.
        [opened] = await session.events(kinds=("pending.opened",))
        assert opened.json()["detail"]["thread"] == thread.key.thread
        assert opened.json()["detail"]["agent"] == "scout"


async def test_what_all_have_used_is_counted() -> None:
    async with Harness(lead(), default_model=plays(GO)) as harness:
        session, _ = await sent(harness)
        assert core_of(session).live.state.usage == {"input_tokens": 1}
        assert await session.usage_all() == {"input_tokens": 31}
        [each] = await session.subagents.list()
        assert (each.agent, each.status, each.calls) == ("scout", "done", 1)
        assert each.usage == {"input_tokens": 30}


async def test_a_sub_agent_may_have_sub_agents() -> None:
    digger = SubAgent("digger", "digs", instructions="Dig.", tools=["look"])
    own = Agent("Scout", instructions="Scout.", tools=[look, paint], subagents=[digger])
    model = plays(
        {
            "Go.": [Say(calls=[hand("Find it.")]), "All is well."],
            "Find it.": [
                Say(calls=[hand("Dig.", agent="digger")], usage={"input_tokens": 1}),
                "Found.",
            ],
            "Dig.": [
                Say(calls=[Use("look", what="hole")], usage={"input_tokens": 2}),
                Say("Dug.", usage={"input_tokens": 4}),
            ],
        }
    )
    async with Harness(lead(SubAgent("scout", "s", agent=own)), default_model=model) as harness:
        session, result = await sent(harness)
        assert result.text == "All is well."
        assert (await outcome(session))["metadata"]["usage"] == {"input_tokens": 7}
        thread = await child(session)
        assert (await outcome(thread))["result"] == "Dug."
        row = await harness.store.row((await child(thread)).key)
        assert row is not None
        assert row.agent == "lead/scout/digger"


async def test_what_the_sub_agent_of_a_sub_agent_asks_comes_up_all_the_way() -> None:
    digger = SubAgent("digger", "digs", instructions="Dig.", tools=["paint"])
    own = Agent("Scout", instructions="Scout.", tools=[paint], subagents=[digger])
    model = plays(
        {
            "Go.": [Say(calls=[hand("Find it.")]), "All is well."],
            "Find it.": [Say(calls=[hand("Paint it.", agent="digger")]), "Found."],
            "Paint it.": ASKING["Paint it."],
        }
    )
    async with Harness(lead(SubAgent("scout", "s", agent=own)), default_model=model) as harness:
        session, result = await sent(harness)
        assert [ask.tool for ask in result.pending] == ["paint"]
        await session.approve(result.pending[0].id)
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).text == "All is well."


@pytest.mark.parametrize(
    ("sub", "fault"),
    [
        (SubAgent("A b", "d", instructions="I."), "the name must be"),
        (SubAgent("scout", " ", instructions="I."), "has no description"),
        (SubAgent("scout", "d"), "pass either an agent or instructions"),
        (SubAgent("scout", "d", instructions="I.", tools=["fly"]), "no tool 'fly'"),
        (SubAgent("scout", "d", instructions="I.", tools=["subagent"]), "cannot be inherited"),
        (SubAgent("scout", "d", instructions="I.", tools=[7]), "is neither a tool"),
        (SubAgent("scout", "d", instructions="I.", steps=0), "more than 0"),
        (SubAgent("scout", "d", instructions="I.", model="scripted/other"), "scripted/other"),
        (SubAgent("scout", "d", agent=Agent("S")), "has no instructions"),
        ("scout", "is not a sub-agent"),
    ],
)
def test_what_is_wrong_with_a_sub_agent_is_said_at_once(sub: object, fault: str) -> None:
    agent = Agent("Lead", instructions="L.", tools=[look], subagents=[sub])
    with pytest.raises(InvalidAgent, match=fault):
        Harness(agent, default_model=ScriptedModel([]))


def test_names_are_given_once() -> None:
    @tool
    def subagent() -> str:
        """Mine."""
        return ""

    for agent, fault in (
        (lead(scout(), scout()), "declared twice"),
        (lead(scout(), tools=[look, paint, subagent]), "is reserved"),
    ):
        with pytest.raises(InvalidAgent, match=fault):
            Harness(agent, default_model=ScriptedModel([]))


def test_the_manifest_names_them() -> None:
    [listed] = lead().manifest["subagents"]
    assert listed == {"name": "scout", "description": "finds things out", "forked": False}
    assert "subagent" in [item["name"] for item in lead().manifest["tools"]]


async def test_waiting_for_a_sub_agent_ends_if_the_session_is_closed() -> None:
    @tool
    async def stay() -> str:
        """Never return."""
        await asyncio.Event().wait()
        return ""

    model = plays({"Go.": Say(calls=[hand("Stay.")]), "Stay.": Say(calls=[Use("stay")])})
    async with Harness(lead(scout(tools=["stay"]), tools=[stay]), default_model=model) as host:
        session = await host.get_or_create("s")
        await session.post("Go.")
        waiting = asyncio.create_task(session.wait())
        live = core_of(session).live
        await until(lambda: delegates(live.state))
        await host.close("s", grace=0.0)
        with pytest.raises(HarnessClosed):
            async with asyncio.timeout(PATIENCE):
                await waiting
