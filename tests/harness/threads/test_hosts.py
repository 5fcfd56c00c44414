"""One host and many sessions: each once, apart from the others, and never one that is dead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import InvalidValue, Mode
from holdfast.harness.session.session import core_of

from ..kernel.scene import Slow, helper, kinds, script, serve


@pytest.mark.parity("mastra-session", 1)
async def test_sessions_of_one_host_have_nothing_of_each_other() -> None:
    models = [script("a", ref="a/m"), script("b", ref="b/m")]
    agent = helper(modes=[Mode("one"), Mode("two")], state={"n": 0})
    async with serve(agent, providers=models, default_model="a/m") as harness:
        one, two = await harness.get_or_create("1"), await harness.get_or_create("2")
        before, heard = await two.events(), two.subscribe()
        await one.mode.switch("two")
        await one.model.set("b/m")
        await one.state.update(n=1)
        await one.thread.create(id="side")
        await one.thread.settings.set(x=1)
        await one.send("hello")
        heard.close()
        assert [item async for item in heard] == []
        assert await two.events() == before
        assert (two.mode.name, two.model.ref, two.state.get()) == ("one", "a/m", {"n": 0})
        assert [row.thread for row in (await two.threads.list()).items] == ["main"]
        assert two.thread.settings.all() == {}


@pytest.mark.parity("mastra-session", 2, 12)
async def test_all_who_ask_get_the_same_session_and_it_is_created_once() -> None:
    told: list[str] = []
    async with serve(helper(), "hi") as harness:
        harness.subscribe(lambda what, id, value: told.append(f"{what} {id}"))
        found = await asyncio.gather(*(harness.get_or_create("s") for _ in range(3)))
        assert found[0] is found[1] is found[2]
        assert await harness.get_or_create(" s ") is found[0]
        assert (await kinds(found[0])).count("session.created") == 1
        assert told.count("session.created s") == 1
        assert told.count("session.opened s") == 1


@pytest.mark.parity("mastra-session", 3)
async def test_odd_names_never_meet() -> None:
    pairs = [("a/b", "c"), ("a", "b/c"), ('["a","b"]', "c"), ("a,b", "c"), ("a", "b,c"), ("á", "c")]
    async with serve(helper(), "hi") as harness:
        sessions = [await harness.get_or_create(id, thread=thread) for id, thread in pairs]
        for n, session in enumerate(sessions):
            await session.thread.settings.set(n=n)
        assert [session.thread.settings.all() for session in sessions] == [
            {"n": n} for n in range(len(pairs))
        ]
        with pytest.raises(InvalidValue):
            await harness.get_or_create("a\0b", thread="c")


@pytest.mark.parity("mastra-session", 4)
async def test_a_creation_that_failed_can_be_tried_again() -> None:
    broken = False

    def start() -> dict[str, Any]:
        if broken:
            raise RuntimeError("not yet")
        return {"n": 1}

    async with serve(helper(state=start), "hi") as harness:
        broken = True
        failed = await asyncio.gather(
            *(harness.get_or_create("s") for _ in range(2)), return_exceptions=True
        )
        assert [type(error) for error in failed] == [RuntimeError, RuntimeError]
        broken = False
        assert (await harness.get_or_create("s")).state.get() == {"n": 1}


@pytest.mark.parity("mastra-session", 7)
async def test_the_session_of_another_agent_is_not_taken() -> None:
    async with serve(helper(label="One"), "hi") as first:
        mine = await first.get_or_create("s")
        second = serve(helper(label="Two"), "hi", store=first.store)
        async with second:
            own = await second.get_or_create("own")
            for attempt in (second.get_or_create("s", thread="side"), second.open("s")):
                with pytest.raises(InvalidValue, match="'one'"):
                    await attempt
            assert (await own.send("hello")).text == "hi"
        assert [row.thread for row in (await mine.threads.list()).items] == ["main"]


@pytest.mark.parity("mastra-session", 16)
async def test_who_asks_while_a_session_is_closed_gets_one_that_lives() -> None:
    async with serve(helper(), "hi") as harness:
        for n in range(100):
            known = await harness.get_or_create("s")
            order = [harness.close("s"), harness.get_or_create("s")]
            results = await asyncio.gather(*(order if n % 2 else reversed(order)))
            session = await harness.get_or_create("s")
            got = next(result for result in results if not isinstance(result, bool))
            assert got is session if n % 2 else got in (known, session)
            assert not core_of(session).closed
            await session.state.update(n=n)
        assert (await session.send("hello")).text == "hi"


async def test_who_asks_while_a_run_is_handed_over_gets_a_session_that_goes_on() -> None:
    slow = Slow()
    async with serve(helper(), default_model=slow) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await slow.gate.someone()
        closing = asyncio.create_task(harness.close("s", grace=0.05))
        await asyncio.sleep(0)
        again = await harness.get_or_create("s")
        assert await closing
        assert again is not session
        assert (core_of(session).closed, core_of(again).closed) == (True, False)
        slow.gate.open()
        assert (await again.wait()).text == "Let me see."


@pytest.mark.parity("mastra-session", 18)
async def test_of_several_who_delete_a_session_one_is_told() -> None:
    told: list[str] = []
    async with serve(helper(), "hi") as harness:
        await (await harness.get_or_create("s")).send("hello")
        harness.subscribe(lambda what, id, value: told.append(what))
        receipts = await asyncio.gather(*(harness.delete("s") for _ in range(3)))
        assert sorted(receipt.removed.get("logs", 0) for receipt in receipts) == [0, 0, 1]
        assert told.count("session.deleted") == 1
        assert (await (await harness.get_or_create("s")).events())[0].kind == "session.created"
