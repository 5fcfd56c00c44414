"""Processes that die or hand over while a sub-agent works: the next one goes on, and the parent
is told once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import msgspec
import pytest

from holdfast import Harness, ToolMissing, connect
from holdfast.events import key
from holdfast.harness.session.session import Session, core_of
from holdfast.models.scripted import Say, ScriptedModel
from holdfast.stores.measure import threads_of

from ... import forks
from ...crash import places
from ..kernel.scene import PATIENCE, Slow
from .scene import ASKING, child, hand, kinds, lead, outcome, plays, scout, sent, told
from .worker import Told, agent, harness, settled

AT_ONCE = 3


def place(kind: str, folder: Path) -> str:
    """The URL of a store of its own."""
    folder.mkdir()
    return places.url(kind, folder)


async def work(**told: Any) -> tuple[int, dict[str, int]]:
    """A process that serves until it is done or dead: how it ended, and which calls it made."""
    said = msgspec.json.encode(Told(**told)).decode()
    done = await asyncio.to_thread(
        forks.run,
        *("-m", "tests.harness.subagents.worker", said),
        needs=("holdfast.harness", "tests.harness.subagents.scene"),
        stdout=PIPE,
        timeout=2 * PATIENCE,
    )
    return done.returncode, msgspec.json.decode(done.stdout) if done.stdout else {}


async def after_all(session: Session) -> dict[str, Any]:
    """All that must be the same, whoever died."""
    texts = [[(m.role, m.text) for m in await session.transcript()]]
    children = await session.subagents.list()
    for each in children:
        thread = await session.subagents.open(each.thread)
        await told(thread)
        texts.append([(m.role, m.text) for m in await thread.transcript()])
    return {
        "texts": texts,
        "children": [(each.agent, each.status, each.usage) for each in children],
        "usage": await session.usage_all(),
        "result": (await outcome(session))["result"],
        "settled": kinds(await session.events()).count("pending.settled"),
        "pending": await session.pending(),
        "due": [
            row.due for row in await threads_of(core_of(session).live.store, session.key.scope)
        ],
    }


async def finished(url: str, forked: bool) -> dict[str, Any]:
    """A new process takes up what is there, and ends it."""
    async with harness(url, agent(forked=forked)) as host:
        session = await host.get_or_create("s")
        await session.post("Go.", key="the one")
        async with asyncio.timeout(PATIENCE):
            result = await session.wait()
            assert (result.status, result.text) == ("done", "All is well.")
            return await after_all(session)


@pytest.mark.parity("user-demand", 78)
@pytest.mark.parametrize("forked", [False, True])
async def test_kill_it_after_any_write_and_it_ends_the_same(tmp_path: Path, forked: bool) -> None:
    whole = f"sqlite:{tmp_path / 'whole.db'}"
    code, calls = await work(url=whole, forked=forked)
    assert code == 0
    expected = await finished(whole, forked)
    assert expected["children"] == [("scout", "done", {"input_tokens": 2})]
    assert expected["usage"] == {"input_tokens": 4}
    assert expected["due"] == [None, None]
    points = [("append", n) for n in range(1, calls["append"] + 1)]
    points += [("fork", n) for n in range(1, calls.get("fork", 0) + 1)]
    assert len(points) > 10
    turns = asyncio.Semaphore(AT_ONCE)

    async def killed(method: str, call: int) -> None:
        url = f"sqlite:{tmp_path / f'{method}{call}.db'}"
        async with turns:
            await work(url=url, forked=forked, method=method, call=call)
            # An append more or less by chance: then it was not killed, and that is no harm.
            found = await finished(url, forked)
        assert found == expected, f"killed after {method} {call}"

    await asyncio.gather(*(killed(*point) for point in points))


EVERY = {"sqlite": 1, "postgres": 4}  # each append, or one of some


@pytest.mark.parametrize("kind", EVERY)
async def test_a_detached_one_reports_once_after_a_kill_at_any_write(
    tmp_path: Path, kind: str
) -> None:
    code, calls = await work(url=place(kind, tmp_path / "whole"), detached=True)
    assert code == 0
    points = range(1, calls["append"] + 1, EVERY[kind])
    assert len(points) > 2
    turns = asyncio.Semaphore(AT_ONCE)

    async def killed(call: int) -> None:
        url = place(kind, tmp_path / str(call))
        async with turns:
            await work(url=url, detached=True, method="append", call=call)
            async with (
                harness(url, agent(forked=False, detached=True)) as host,
                asyncio.timeout(PATIENCE),
            ):
                session = await host.get_or_create("s")
                await session.post("Go.", key="the one")
                await session.wait()
                [one] = await session.subagents.list()
                await told(await session.subagents.open(one.thread))
                await settled(session)
                [one] = await session.subagents.list()
                events = await session.events()
        said = [event.json() for event in events if event.kind == "message.received"]
        assert [each.get("thread") for each in said] == [None, one.thread], f"killed at {call}"
        assert said[1]["text"].endswith("The sky is blue.")
        assert (one.agent, one.status) == ("scout", "done")
        ends = [
            event.json().get("status", "done") for event in events if event.kind == "run.finished"
        ]
        assert ends in (["done"], ["done", "done"])
        last = [event.json() for event in events if event.kind == "message.completed"][-1]
        assert last["text"] == "I know now."

    await asyncio.gather(*(killed(call) for call in points))


async def test_a_call_of_a_lost_sub_agent_is_asked_about_at_the_parent(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'x.db'}"
    code, _ = await work(url=url, in_tool=True)
    assert code == -9
    async with harness(url, agent(forked=False)) as host:
        session = await host.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            result = await session.wait()
            assert result.status == "waiting"
            [ask] = result.pending
            assert (ask.what, ask.tool, ask.thread != "main") == ("external", "look", True)
            await session.answer("sky is blue", ask.id)
            assert (await session.wait()).text == "All is well."


@pytest.mark.parity("user-demand", 78)
async def test_a_lost_sub_agent_is_told_of_where_runs_are_not_resumed(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'x.db'}"
    code, _ = await work(url=url, in_tool=True)
    assert code == -9
    async with harness(url, agent(forked=False), recovery="close") as host:
        session = await host.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).text == "All is well."
        made = await outcome(session)
        assert (made["outcome"], made["code"]) == ("failed", "driver_lost")
        assert "did not finish (interrupted)" in made["content"]
        assert [each.status for each in await session.subagents.list()] == ["interrupted"]


async def test_what_a_sub_agent_asks_can_be_answered_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'x.db'}"
    async with Harness(lead(), default_model=plays(ASKING), store=url) as harness:
        _, result = await sent(harness)
        [ask] = result.pending
    async with Harness(lead(), default_model=plays(ASKING), store=url) as harness:
        session = await harness.get_or_create("s")
        assert await session.pending() == [ask]
        await session.approve(ask.id)
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).text == "All is well."


async def test_it_is_answered_where_no_session_is_open(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'x.db'}"
    async with Harness(lead(), default_model=plays(ASKING), store=url) as harness:
        await sent(harness)
    async with (
        connect(url) as store,
        Harness(lead(), default_model=plays(ASKING), store=store, ttl=0.5) as harness,
    ):
        await harness.approve("s")
        async with asyncio.timeout(PATIENCE):
            while (row := await store.row(key("s"))) is None or row.run != "done":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert row.pending == {}


@pytest.mark.parametrize("wanted", ["done", "aborted"])
async def test_a_harness_that_closes_hands_its_sub_agents_over(tmp_path: Path, wanted: str) -> None:
    url, slow = f"sqlite:{tmp_path / 'x.db'}", Slow("I have", " it.")
    first = plays({"Go.": [Say(calls=[hand("Find it.")]), "All is well."]})
    served = lead(scout(model="slow/model"))
    async with Harness(served, default_model=first, providers=[slow], store=url) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("Go."))
        await slow.gate.someone()
        await core_of(session).live.until(lambda: bool(core_of(session).live.state.pending))
        await harness.aclose(grace=0.0)
        with pytest.raises(Exception, match="closed"):
            await sending
    again = Slow("I have", " it.")
    async with Harness(served, default_model=first, providers=[again], store=url) as harness:
        session = await harness.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            await again.gate.someone()
            if wanted == "aborted":
                await session.abort()
            else:
                again.gate.open()
            assert (await session.wait()).status == wanted
            assert (await (await child(session)).wait()).status == wanted


async def test_a_sub_agent_that_is_not_there_any_more_stops_nothing_else(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'x.db'}"
    async with Harness(lead(), default_model=plays(ASKING), store=url) as harness:
        await sent(harness)
    other = replace(lead(), subagents=())
    model = ScriptedModel(["Hello."], repeat=True)
    async with Harness(other, default_model=model, store=url) as harness:
        session, result = await sent(harness, "Hi.", id="other")
        assert result.text == "Hello."
        session = await harness.get_or_create("s")
        with pytest.raises(ToolMissing, match="subagent"):
            await session.wait()
        await session.abort()
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "aborted"
