"""Sub-agents that nothing waits for: their results arrive as messages, once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Harness, SubAgent, tool
from holdfast.bundle import replay
from holdfast.events import Event
from holdfast.harness.loop.detached import MOST
from holdfast.harness.session.session import Session, core_of
from holdfast.models.scripted import Say, ScriptedModel, Step, Use
from holdfast.sessions import Sessions

from ..kernel.scene import PATIENCE, Gate, Slow
from .scene import child, hand, lead, look, outcome, paint, plays, scout, sent, told

GO: list[Step] = [Say(calls=[hand("Find it.", detached=True)]), "I went on."]


def script(**more: Any) -> ScriptedModel:
    """The parent goes on, and reads the result of the scout as a message later."""
    return plays({"Sub-agent": "I know now.", "Go.": GO, **more})


def detachable(*tools: Any, **more: Any) -> Agent:
    """A lead with a scout that may be detached, and that works until it is told to end."""
    given: dict[str, Any] = {"model": "slow/model", "detached": True, **more}
    return lead(scout(**given), tools=[look, paint, *tools])


def reports(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The results of detached sub-agents that have arrived."""
    said = [event.json() for event in events if event.kind == "message.received"]
    return [one for one in said if one.get("thread")]


def runs(events: Sequence[Event]) -> int:
    return [event.kind for event in events].count("run.started")


async def over(session: Session, thread: Session) -> list[dict[str, Any]]:
    """Wait until a sub-agent has reported, and its parent has read it. Returns all reports."""
    async with asyncio.timeout(PATIENCE):
        await told(thread)
        await core_of(session).catch_up()
        await session.wait()
    return reports(await session.events())


@pytest.mark.parametrize("store", ["memory:", "sqlite:{}/x.db"])
@pytest.mark.parametrize("forked", [False, True])
async def test_its_result_starts_a_run(tmp_path: Path, store: str, forked: bool) -> None:
    slow, url = Slow("It is", " blue."), store.format(tmp_path)
    agent = detachable(forked=forked)
    async with Harness(agent, default_model=script(), providers=[slow], store=url) as harness:
        session, result = await sent(harness)
        assert (result.status, result.text, result.pending) == ("done", "I went on.", ())
        made, thread = await outcome(session), await child(session)
        assert made["metadata"]["thread"] == thread.key.thread
        assert thread.key.thread in made["result"]
        assert session.subagents.working == []
        assert await session.subagents.detached() == [thread.key.thread]
        slow.gate.open()
        [report] = await over(session, thread)
        assert report["how"] == "steer"
        assert report["text"].startswith("Sub-agent scout: Find it. (sub/")
        assert report["text"].endswith("It is blue.")
        assert (await session.transcript())[-1].text == "I know now."
        assert await session.subagents.detached() == []
        [notice] = await session.notifications.list()
        assert (notice.notice.source, notice.notice.kind) == ("subagent", "done")
        assert (notice.notice.about, notice.status) == (thread.key.thread, "delivered")
        found = await replay((harness.store, session.key.scope), agent)
        assert found.first is None


async def test_its_result_joins_an_open_run() -> None:
    gate, slow = Gate(), Slow("Blue.")

    @tool
    async def hold() -> str:
        """Wait."""
        await gate.pass_through()
        return "held"

    go: list[Step] = [*GO[:1], Say(calls=[Use("hold")]), "I went on."]
    model = script(**{"Go.": go})
    agent = detachable(hold)
    async with Harness(agent, default_model=model, providers=[slow]) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("Go."))
        async with asyncio.timeout(PATIENCE):
            await gate.someone()
            slow.gate.open()
            await told(await child(session))
            gate.open()
            assert (await sending).text == "I know now."
        events = await session.events()
        assert (len(reports(events)), runs(events)) == (1, 1)
        shown = session.display.get().subagents
        assert [(one.agent, one.detached, one.status) for one in shown.values()] == [
            ("scout", True, "done")
        ]


async def test_its_result_leaves_the_questions_of_the_parent_open() -> None:
    slow = Slow("Blue.")
    model = script(**{"Go.": [*GO[:1], Say(calls=[Use("paint", what="sky")]), "Painted."]})
    async with Harness(detachable(), default_model=model, providers=[slow]) as harness:
        session, result = await sent(harness)
        assert result.status == "waiting"
        slow.gate.open()
        assert len(await over(session, await child(session))) == 1
        [ask] = await session.pending()
        assert ask.tool == "paint"
        await session.approve(ask.id)
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).text == "I know now."
        assert (await outcome(session, 1))["result"] == "sky is red now"
        assert runs(await session.events()) == 1


async def test_it_goes_on_when_the_run_of_its_parent_is_aborted() -> None:
    slow = Slow("Blue.")
    model = script(**{"Go.": [*GO[:1], Say(calls=[Use("paint", what="sky")]), "Painted."]})
    async with Harness(detachable(), default_model=model, providers=[slow]) as harness:
        session, _ = await sent(harness)
        await session.abort()
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "aborted"
        thread = await child(session)
        assert await session.subagents.detached() == [thread.key.thread]
        slow.gate.open()
        [report] = await over(session, thread)
        assert report["metadata"]["notification"]["kind"] == "done"
        assert (await session.transcript())[-1].text == "I know now."


async def test_a_stopped_one_reports_that_it_was_stopped() -> None:
    slow = Slow("Blue.")
    async with Harness(detachable(), default_model=script(), providers=[slow]) as harness:
        session, _ = await sent(harness)
        thread = await child(session)
        async with asyncio.timeout(PATIENCE):
            await slow.gate.someone()
        await thread.abort()
        [report] = await over(session, thread)
        assert report["metadata"]["notification"]["kind"] == "aborted"
        assert "was stopped" in report["text"]


async def test_what_it_asks_is_asked_at_the_parent() -> None:
    parts = {"Find it.": [Say(calls=[Use("paint", what="sky")]), "It is painted."]}
    model, agent = script(**parts), detachable(model=None)
    async with Harness(agent, default_model=model) as harness:
        session, _ = await sent(harness)
        thread = await child(session)
        async with asyncio.timeout(PATIENCE):
            assert (await thread.wait()).status == "waiting"
        [ask] = await session.pending()
        assert (ask.tool, ask.thread) == ("paint", thread.key.thread)
        await session.approve()
        [report] = await over(session, thread)
        assert report["text"].endswith("It is painted.")


@pytest.mark.parametrize("what", ["rewound", "forked", "expired"])
async def test_its_result_arrives_once_whatever_becomes_of_the_parent(what: str) -> None:
    slow = Slow("Blue.")
    async with Harness(detachable(), default_model=script(), providers=[slow]) as harness:
        session, _ = await sent(harness)
        thread, other = await child(session), None
        if what == "rewound":
            await session.rewind(0)
        elif what == "forked":
            other = await session.thread.fork()
        else:
            await Sessions(harness.store).expire("s")
        slow.gate.open()
        async with asyncio.timeout(PATIENCE):
            await told(thread)
            live = core_of(session).live
            await live.until(lambda: live.state.due is None and live.state.active is None)
        events = [e async for e in harness.store.read(session.key)]
        assert len(reports(events)) == 1
        assert events[-1].kind == "run.finished"
        if other is not None:
            assert reports(await other.events()) == []


async def test_a_deleted_parent_is_not_created_again() -> None:
    slow = Slow("Blue.")
    async with Harness(detachable(), default_model=script(), providers=[slow]) as harness:
        main = await harness.get_or_create("s")
        made = await main.thread.create("side")
        side = (await core_of(main).host.open("s", made.key.thread)).session
        await side.send("Go.")
        thread = await child(side)
        await main.thread.delete(side.key.thread)
        slow.gate.open()
        async with asyncio.timeout(PATIENCE):
            await told(thread)
        assert await harness.store.row(side.key) is None
        row = await harness.store.row(thread.key)
        assert (row is None) or (row.run, row.due) == ("done", None)


async def test_a_session_has_a_limited_number_at_the_same_time() -> None:
    slow = Slow("Blue.")
    calls = [hand(f"Find {n}.", detached=True) for n in range(MOST + 2)]
    model = script(**{"Go.": [Say(calls=calls), "I went on."]})
    async with Harness(detachable(), default_model=model, providers=[slow]) as harness:
        session, _ = await sent(harness)
        ends = [(await outcome(session, n)).get("outcome", "ok") for n in range(MOST + 2)]
        assert sorted(ends) == ["failed"] * 2 + ["ok"] * MOST
        assert len(await session.subagents.detached()) == MOST
        slow.gate.open()
        for n in range(MOST):
            found = await over(session, await child(session, n))
        assert len(found) == MOST


async def test_it_must_be_allowed() -> None:
    """Agents without such a sub-agent have the tool that they always had, with its fingerprint."""
    one, two = (SubAgent(name, f"does {name}", instructions="I.") for name in "xy")
    plain = one.delegation([one, two])
    assert list(plain.schema["properties"]) == ["agent", "task", "model", "forked"]
    assert plain.fingerprint == "89e967b99b4c8038"
    other = SubAgent("z", "does z", instructions="I.", detached=True)
    more = other.delegation([one, two, other])
    assert list(more.schema["properties"]) == ["agent", "task", "model", "forked", "detached"]
    assert more.schema["properties"]["detached"]["description"].endswith("Only for: z.")
    free = SubAgent("free", "is free", instructions="Free.", detached=True)
    async with Harness(lead(scout(), free), default_model=script()) as harness:
        session, _ = await sent(harness)
        refused = await outcome(session)
        assert refused["outcome"] == "failed"
        assert "cannot be detached" in refused["content"]
        assert await session.subagents.list() == []


async def test_a_sub_agent_detaches_none() -> None:
    inner = SubAgent("inner", "is inner", instructions="Inner.", detached=True)
    boss = Agent("Boss", instructions="Boss.", subagents=[inner])
    model = plays(
        {
            "Go.": [Say(calls=[hand("Boss it.", agent="boss")]), "Done."],
            "Boss it.": [Say(calls=[hand("Do.", agent="inner", detached=True)]), "I could not."],
        }
    )
    async with Harness(lead(SubAgent("boss", "leads", agent=boss)), default_model=model) as harness:
        session, result = await sent(harness)
        assert result.text == "Done."
        refused = await outcome(await child(session))
        assert "cannot start detached" in refused["content"]
