"""What a driver decided is not done any more when something else was said while it looked things
up."""

from __future__ import annotations

import asyncio

from holdfast.harness.session.session import Session, core_of
from holdfast.models.scripted import ScriptedModel
from holdfast.stores.memory import MemoryStore
from holdfast.testing import FaultyStore
from holdfast.testing.faults import Stall

from ..kernel.scene import PATIENCE, Slow, helper, kinds, only, serve

LONG = 40  # events: what is further back is read from the store again


async def filled(session: Session) -> None:
    """Let what was said before be far away."""
    for n in range(LONG):
        await session.emit("note.made", {"n": n})


async def test_a_message_that_is_taken_out_as_its_run_begins_is_not_read() -> None:
    store, model = FaultyStore(MemoryStore()), Slow(quick=["last"])
    async with serve(helper(), default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        seq = await session.post("never mind " * LONG * 200)  # too large to be kept at hand
        await session.post("last")
        await filled(session)
        stall = Stall(method="read", call=store.calls["read"] + 1)
        store.plan.append(stall)
        model.gate.open()
        async with asyncio.timeout(PATIENCE):
            await stall.reached.wait()  # it is about to begin with that message
            assert (await kinds_of(store))[-1] == "run.finished"
            await session.follow_ups.remove(seq)
            stall.go.set()
            assert (await session.wait()).text == "quick last"
        assert len(model.calls) == 2
        taken = [one["inputs"] for one in only(await session.events(), "run.started")]
        assert [seq] not in taken


async def test_a_message_that_waits_is_not_read_again() -> None:
    store, model = FaultyStore(MemoryStore()), Slow(quick=["next"])
    async with serve(helper(), default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        seq = await session.post("next")
        await filled(session)
        before = store.calls["read"]
        model.gate.open()
        async with asyncio.timeout(PATIENCE):
            await core_of(session).live.until(lambda: not core_of(session).live.state.queue)
        assert store.calls["read"] == before
        async with asyncio.timeout(PATIENCE):
            await session.wait()
        taken = [one["inputs"] for one in only(await session.events(), "run.started")]
        assert taken[1:] == [[seq]]


async def test_what_is_erased_while_it_waits_is_not_listed() -> None:
    store, model = MemoryStore(), Slow()
    async with serve(helper(), default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        seq = await session.post("my secret")
        await filled(session)
        await store.erase(core_of(session).live.key, [seq], reason="asked to")
        assert [one.text for one in await session.follow_ups.list()] == [""]
        model.gate.open()


async def test_a_timer_that_is_cleared_as_it_rings_brings_nothing() -> None:
    store, model = FaultyStore(MemoryStore()), ScriptedModel(["Hi."], repeat=True)
    async with serve(helper(), default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        for name in ("one", "two"):
            await session.timers.set(f"{name} rings", seconds=0.3, id=name)
        await filled(session)
        stall = Stall(method="read", call=store.calls["read"] + 1)
        store.plan.append(stall)
        async with asyncio.timeout(PATIENCE):
            await stall.reached.wait()
            clearing = asyncio.create_task(session.timers.clear("two"))
            await core_of(session).live.until(
                lambda: "two" not in core_of(session).live.state.timers
            )
            stall.go.set()
            await clearing
            await core_of(session).live.until(lambda: core_of(session).live.state.run is not None)
            await session.wait()
        texts = [one["text"] for one in only(await session.events(), "message.received")]
        assert texts == ["one rings"]
        assert "two" not in [one["id"] for one in only(await session.events(), "timer.fired")]
        assert (await kinds(session)).count("run.started") == 1


async def kinds_of(store: FaultyStore) -> list[str]:
    from holdfast.events import key

    return [event.kind async for event in store.inner.read(key("s"))]
