"""Sessions that nobody uses: forgotten when that is asked for, and there again as they were."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from holdfast import Harness, HarnessClosed, InvalidValue
from holdfast.harness.agents.runtime import OUTPUTS, Outputs
from holdfast.harness.session.session import core_of
from holdfast.models import ScriptedModel, Use

from ..kernel.scene import PATIENCE, Slow, helper, serve
from ..subagents.scene import GO, child, lead, plays, sent, told
from .crash.witness import view
from .stage import WORK, says, workshop


def served(**settings: Any) -> Harness:
    return Harness(workshop(), default_model=ScriptedModel(WORK, per_turn=True), **settings)


async def gone(harness: Harness, id: str) -> None:
    """Have it forgotten, as soon as its driver has let go."""
    async with asyncio.timeout(PATIENCE):
        while id not in await harness.evict(idle=0.0):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parity("mastra-session", 184)
async def test_a_session_that_is_forgotten_comes_back_as_it_was(tmp_path: Path) -> None:
    async with served(store=f"sqlite:{tmp_path / 'e.db'}") as harness:
        session = await harness.get_or_create("s", user="ann")
        await session.mode.switch("build")
        await session.state.update(colour="red")
        await session.thread.settings.set(theme="dark")
        await session.send("go")
        await session.post("and then")
        async with asyncio.timeout(PATIENCE):
            await core_of(session).live.until(lambda: core_of(session).live.state.due is None)
        before = await view(session)
        assert (len(before["pending"]), len(before["queue"])) == (3, 1)
        await gone(harness, "s")
        assert (harness.get("s"), await harness.evict(idle=0.0)) == (None, ())
        with pytest.raises(HarnessClosed):
            await session.send("too late")
        again = await harness.get_or_create("s")
        assert again is not session
        assert await view(again) == before
        for ask in await again.pending():
            approval = ask.what == "approval"
            await (again.approve(ask.id) if approval else again.answer("red", ask.id))
        async with asyncio.timeout(PATIENCE):
            assert (await again.wait()).status == "waiting"  # the message that had waited is next


@pytest.mark.parity("mastra-session", 184)
async def test_what_somebody_uses_stays() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        working, heard, seen, idle = [await harness.get_or_create(id) for id in "abcd"]
        running = asyncio.create_task(working.send("go"))
        listener = heard.subscribe()
        changes = seen.display.changes()
        await anext(changes)
        await model.gate.someone()
        assert await harness.evict() == ()  # all were used a moment ago
        assert await harness.evict(idle=0.0) == ("d",)
        assert core_of(idle).closed
        listener.close()
        await changes.aclose()
        assert await harness.evict(idle=0.0) == ("b", "c")
        model.gate.open()
        assert (await running).text == "Let me see."
        await gone(harness, "a")


async def test_what_is_asked_for_while_it_goes_is_opened_anew() -> None:
    async with served() as harness:
        for n in range(20):
            session = await harness.get_or_create("s")
            _, again = await asyncio.gather(harness.evict(idle=0.0), harness.get_or_create("s"))
            assert not core_of(again).closed
            await again.state.update(n=n)
            with contextlib.suppress(HarnessClosed):
                await session.state.update(n=n)
            assert again.state.get()["n"] == n


async def test_only_a_number_of_seconds_is_taken() -> None:
    async with served() as harness:
        for wrong in ("soon", float("nan"), None):
            with pytest.raises(InvalidValue):
                await harness.evict(wrong)  # type: ignore[arg-type]


async def test_a_timer_of_what_was_forgotten_still_rings() -> None:
    model = ScriptedModel([says(Use("look", path="a")), says(text="Done.")], per_turn=True)
    async with Harness(workshop(), default_model=model, ttl=0.2) as harness:
        session = await harness.get_or_create("s")
        await session.timers.set("wake up", seconds=0.05)
        await gone(harness, "s")
        async with asyncio.timeout(PATIENCE):
            again = await harness.get_or_create("s")
            await core_of(again).live.until(lambda: core_of(again).live.state.run is not None)
            assert (await again.wait()).text == "Done."


async def test_the_threads_of_sub_agents_that_have_ended_go_before_their_session() -> None:
    async with Harness(lead(), default_model=plays(GO)) as harness:
        session, result = await sent(harness)
        assert result.text == "All is well."
        working = await child(session)
        await told(working)
        listener = session.subscribe()  # so that the session stays
        before = await view(session)
        async with asyncio.timeout(PATIENCE):
            while not core_of(working).closed:
                assert await harness.evict(idle=0.0) == ()
                await asyncio.sleep(0.005)
        assert not core_of(session).closed
        listener.close()
        assert await view(session) == before  # it is opened anew when somebody looks


async def test_of_the_types_that_were_asked_for_the_latest_are_kept() -> None:
    outputs = Outputs()
    for n in range(3 * OUTPUTS):
        outputs["log", n] = n
    assert (len(outputs), next(iter(outputs))) == (OUTPUTS, ("log", 2 * OUTPUTS))
