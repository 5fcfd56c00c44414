"""Sub-agents that begin as copies of their parent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Harness, SubAgent
from holdfast.harness.builtins import TASKS
from holdfast.harness.session.session import core_of
from holdfast.models.port import FromUser, ModelCall, PromptMessage, Text
from holdfast.models.scripted import Say, ScriptedModel, Use, last_input

from ..kernel.scene import PATIENCE, read
from .scene import asked_as, child, hand, kinds, lead, look, outcome, paint, plays, scout, sent

TWIN = SubAgent("twin", "knows all that you know", forked=True)


def twin(task: str, **more: Any) -> Any:
    return hand(task, agent="twin", **more)


def forks(model: ScriptedModel) -> list[ModelCall]:
    return [call for call in model.calls if "made for one task" in last_input(call)]


def pieces(messages: tuple[PromptMessage, ...]) -> list[Any]:
    """A prompt in its smallest parts: what follows may be joined to the last message."""
    parts: list[Any] = []
    for message in messages:
        parts.extend(message.content if isinstance(message, FromUser) else [message])
    return parts


@pytest.mark.parity("mastra-session", 159, 160)
@pytest.mark.parametrize("looks_first", [True, False])
async def test_a_fork_reads_all_that_its_parent_read_to_the_byte(looks_first: bool) -> None:
    before = [Say("I look.", calls=[Use("look", what="sky")])] if looks_first else []
    model = plays(
        {
            "Count it.": "I counted 3.",
            "Hello.": "Hi.",
            "Go.": [*before, Say("I ask.", calls=[twin("Count it.")]), "All is well."],
        }
    )
    agent = lead(TWIN, scout(), tools=[look, paint, *TASKS])
    async with Harness(agent, default_model=model) as harness:
        await sent(harness, "Hello.")
        session, result = await sent(harness)
        assert result.text == "All is well."
        assert (await outcome(session, len(before)))["result"] == "I counted 3."
        [fork] = forks(model)
        parent = model.calls[1 + len(before)]  # the one that was answered with the call
        assert fork.system == parent.system == "Lead."
        assert fork.tools == parent.tools
        known = pieces(parent.messages)
        assert pieces(fork.messages)[: len(known)] == known
        [task] = pieces(fork.messages)[len(known) :]
        assert isinstance(task, Text)
        assert task.text.endswith("\n\nCount it.")
        # The parent goes on as if nothing had been between.
        assert read(model.calls[-1])[-1] == "tools: I counted 3."
        thread = await child(session)
        row = await harness.store.row(thread.key)
        assert row is not None
        assert row.parent is not None
        assert (row.agent, row.parent.thread, row.due) == ("lead/twin", "main", None)
        assert "thread.forked" not in kinds(await session.events())


@pytest.mark.parity("mastra-session", 155)
async def test_a_fork_cannot_change_the_tasks_of_its_parent() -> None:
    write = Use("task_write", tasks=[{"content": "Other."}])
    model = plays(
        {
            "Rewrite.": [Say(calls=[write, Use("task_check")]), "I could not."],
            "Go.": [
                Say(calls=[Use("task_write", tasks=[{"content": "Mine."}])]),
                Say(calls=[twin("Rewrite.")]),
                "All is well.",
            ],
        }
    )
    agent = lead(TWIN, tools=[look, *TASKS])
    async with Harness(agent, default_model=model) as harness:
        session, result = await sent(harness)
        assert result.status == "done"
        thread = await child(session)
        run = core_of(thread).live.state.run
        assert run is not None
        ended = await thread.events(after=run.seq, kinds=("tool.finished",))
        refused = [event.json() for event in ended]
        assert {r["code"] for r in refused} == {"not_in_a_fork"}
        assert len(refused) == 2
        assert [task.content for task in core_of(session).live.state.tasks] == ["Mine."]
        assert [task.content for task in core_of(thread).live.state.tasks] == ["Mine."]


@pytest.mark.parity("mastra-session", 161)
async def test_a_fork_cannot_hand_tasks_on() -> None:
    model = plays(
        {
            "Again.": [Say(calls=[twin("More."), hand("Find it.")]), "I could not."],
            "Go.": [Say(calls=[twin("Again.")]), "All is well."],
        }
    )
    async with Harness(lead(TWIN, scout()), default_model=model) as harness:
        session, result = await sent(harness)
        assert result.status == "done"
        thread = await child(session)
        ended = [e.json() for e in await thread.events(kinds=("tool.finished",))]
        assert [e["code"] for e in ended] == ["not_in_a_fork"] * 2
        assert all("cannot be done by a forked sub-agent" in e["content"] for e in ended)
        assert len(await session.subagents.list()) == 1
        assert await thread.subagents.list() == []


async def test_the_call_says_whether_it_is_a_fork() -> None:
    model = plays(
        {
            "Find it.": "Found.",
            "Go.": [
                Say(calls=[hand("Find it.", forked=True)]),
                Say(calls=[hand("Find it.", agent="copy", forked=False)]),
                Say(calls=[twin("Find it.", forked=False)]),
                "All is well.",
            ],
        }
    )
    copy = SubAgent("copy", "c", instructions="Copy.", forked=True)
    async with Harness(lead(scout(), copy, TWIN), default_model=model) as harness:
        session, result = await sent(harness)
        assert result.status == "done"
        assert [call.system for call in forks(model)] == ["Lead."]
        assert len(asked_as(model, "Copy.")) == 1
        refused = await outcome(session, 2)  # it has no instructions to begin afresh with
        assert refused["outcome"] == "failed"
        assert "use forked=True" in refused["content"]


async def test_what_a_fork_asks_is_answered_at_the_parent() -> None:
    model = plays(
        {
            "Paint it.": [Say(calls=[Use("paint", what="sky")]), "Painted."],
            "Go.": [Say(calls=[twin("Paint it.")]), "All is well."],
        }
    )
    async with Harness(lead(TWIN), default_model=model) as harness:
        session, result = await sent(harness)
        assert [ask.tool for ask in result.pending] == ["paint"]
        await session.approve()
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).text == "All is well."
        assert (await outcome(session))["result"] == "Painted."


async def test_a_fork_counts_only_what_it_used_itself() -> None:
    model = plays(
        {
            "Count it.": Say("3.", usage={"input_tokens": 100}),
            "Go.": [Say(calls=[twin("Count it.")], usage={"input_tokens": 1}), "All is well."],
        }
    )
    async with Harness(lead(TWIN), default_model=model) as harness:
        session, _ = await sent(harness)
        assert (await outcome(session))["metadata"]["usage"] == {"input_tokens": 100}
        assert await session.usage_all() == {"input_tokens": 101}


async def test_a_fork_of_a_sub_agents_thread_owes_nobody_an_answer() -> None:
    model = plays(
        {"Find it.": "Found.", "More?": "More.", "Go.": [Say(calls=[hand("Find it.")]), "Well."]}
    )
    async with Harness(lead(), default_model=model) as harness:
        session, _ = await sent(harness)
        thread = await child(session)
        other = await thread.threads.fork()
        async with asyncio.timeout(PATIENCE):
            assert (await other.send("More?")).text == "More."
        assert core_of(other).live.state.sub is not None
        assert not core_of(other).live.state.owes
        assert model.calls[-1].system == "Scout."
        assert kinds(await session.events()).count("pending.settled") == 1
