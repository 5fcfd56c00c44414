"""Runs that start with the append of their message, and release the lease with their last one: how
many calls of the store that takes, and that nothing is lost or reordered by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Harness, Hook, key, tool
from holdfast.harness.live import log_loader
from holdfast.log.state.values import VERSION
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.store import StoreInfo
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore, Stall
from tests.virtual_time import virtual_time

from .scene import PATIENCE, Slow, helper, kinds, only, script, serve, until

TURN = ["message.received", "run.started", "model.called", "message.completed", "run.finished"]


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


ADDING = (Say(calls=[Use("add", a=1, b=2)]), "three")


def spent(store: FaultyStore) -> dict[str, int]:
    """The calls that changed the store since the last time."""
    changing = ("append", "acquire", "renew", "release")
    calls = {name: store.calls[name] for name in changing if store.calls[name]}
    store.calls.clear()
    return calls


# How many calls it takes


@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_a_turn_takes_two_calls_of_the_store(pause: float) -> None:
    store = FaultyStore(MemoryStore())
    async with serve(helper(), "hi", store=store) as harness:
        session = await harness.get_or_create("s")
        spent(store)
        for n in range(5):
            assert (await session.send(f"{n}")).text == "hi"
            assert spent(store) == {"append": 2}
            await asyncio.sleep(pause)
        assert (await kinds(session))[-5:] == TURN


async def test_a_turn_with_one_tool_takes_four_calls_of_the_store() -> None:
    store = FaultyStore(MemoryStore())
    async with serve(helper(tools=[add]), *ADDING, store=store) as harness:
        session = await harness.get_or_create("s")
        spent(store)
        for _ in range(3):
            assert (await session.send("go")).text == "three"
            assert spent(store) == {"append": 4}


@virtual_time
async def test_several_tools_take_one_call_for_each_result() -> None:
    @tool(concurrency=1)
    async def one_by_one(n: int) -> int:
        """Wait."""
        await asyncio.sleep(1)
        return n

    store = FaultyStore(MemoryStore())
    asked = Say(calls=[Use("one_by_one", n=n) for n in range(3)])
    async with serve(helper(tools=[one_by_one]), asked, "done", store=store) as harness:
        session = await harness.get_or_create("s")
        spent(store)
        assert (await session.send("go")).text == "done"
        assert spent(store) == {"append": 6}  # the start, the calls, three results, the end


async def test_two_processes_that_serve_one_session_take_two_calls_a_turn() -> None:
    shared = MemoryStore()
    one, other = FaultyStore(shared), FaultyStore(shared)
    first, second = (serve(helper(), "hi", store=store) for store in (one, other))
    async with first, second:
        for n in range(4):
            harness = (first, second)[n % 2]
            session = await harness.get_or_create("s")
            await session.wait()  # until it has seen what the other wrote
            spent(one)
            spent(other)
            assert (await session.send(f"{n}")).text == "hi"
            assert (spent(one), spent(other)) in (({"append": 2}, {}), ({}, {"append": 2}))


async def test_a_run_is_found_by_its_id() -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert result.run is not None
        assert await harness.store.locate("main", result.run) == [key("s")]


# What has to be done step by step


class Plain(FaultyStore):
    """A store that does not support leases together with appends."""

    def info(self) -> StoreInfo:
        return replace(self.inner.info(), lease_with_append=False)

    def _pass_on(self, method: str, *args: Any, **options: Any) -> Any:
        assert not options.keys() & {"acquire", "release", "mark"}
        return super()._pass_on(method, *args, **options)


async def test_a_store_without_leases_in_appends_still_works() -> None:
    store = Plain(MemoryStore())
    async with serve(helper(tools=[add]), *ADDING, store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "three"
        assert store.calls["acquire"] == store.calls["release"] == 1


async def test_hooks_see_a_run_step_by_step() -> None:
    seen: list[str] = []
    hooks = [Hook(kind, lambda context, event: seen.append(event.kind)) for kind in TURN]
    store = FaultyStore(MemoryStore())
    async with serve(helper(hooks=hooks), "hi", store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "hi"
        await until(lambda: len(seen) == 5)
        assert seen == TURN
        assert store.calls["acquire"] == 1


async def test_a_message_to_a_busy_session_is_queued() -> None:
    model, store = Slow(quick=["next"]), FaultyStore(MemoryStore())
    async with serve(helper(), default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        await session.post("next")
        assert (await kinds(session))[-1] == "message.received"
        model.gate.open()
        assert (await session.wait()).text == "quick next"
        assert (await kinds(session)).count("run.finished") == 2


async def test_a_known_message_is_not_written_again() -> None:
    store = FaultyStore(MemoryStore())
    async with serve(helper(), "hi", store=store) as harness:
        session = await harness.get_or_create("s")
        first = await session.send("go", key="k")
        again = await session.send("go", key="k")
        assert (again.text, again.seq) == (first.text, first.seq)
        assert (await kinds(session)).count("message.received") == 1
        with pytest.raises(Exception, match="used for another message"):
            await session.send("stop", key="k")


# Order and cancellation


async def test_messages_that_are_sent_at_once_keep_their_order() -> None:
    store = FaultyStore(MemoryStore())
    async with serve(helper(), "hi", store=store) as harness:
        session = await harness.get_or_create("s")
        for turn in range(5):
            texts = [f"{turn}/{n}" for n in range(8)]
            await asyncio.gather(*(session.post(text) for text in texts))
            await session.wait()
            sent = only(await session.events(), "message.received")
            assert [message["text"] for message in sent[-8:]] == texts


async def test_a_sender_who_is_cancelled_takes_nothing_back() -> None:
    store, model = FaultyStore(MemoryStore()), ScriptedModel(["hi"], per_turn=True)
    stall = Stall(method="append", call=2)
    async with serve(helper(), default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        store.plan.append(stall)
        sending = asyncio.create_task(session.send("go"))
        async with asyncio.timeout(PATIENCE):
            await stall.reached.wait()
            sending.cancel()
            await asyncio.wait([sending])
            stall.go.set()
            await until(lambda: len(model.calls) == 1)
            assert (await session.wait()).text == "hi"
        assert (await session.send("again")).text == "hi"
        assert (await kinds(session)).count("run.started") == 2


async def test_typed_output_is_known_before_the_run_begins() -> None:
    model = ScriptedModel([Say(calls=[Use("final_result", value=3)])], per_turn=True)
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        for _ in range(2):
            result = await session.send("go", output_type=int)
            assert result.status == "done"


# Lost replies and crashes, in virtual time


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
@virtual_time
async def test_a_lost_reply_to_an_append_costs_less_than_a_second(call: int, after: bool) -> None:
    store = FaultyStore(MemoryStore())
    async with serve(helper(tools=[add]), *ADDING, store=store) as harness:
        session = await harness.get_or_create("s")
        spent(store)
        store.plan.append(Fail(method="append", call=call, after=after))
        begun = asyncio.get_running_loop().time()
        assert (await session.send("go")).text == "three"
        assert asyncio.get_running_loop().time() - begun < 1
        assert (await kinds(session)).count("tool.finished") == 1
        assert (await session.send("go")).text == "three"


@pytest.mark.parametrize("method", ["acquire", "release"])
@pytest.mark.parametrize("after", [False, True])
@virtual_time
async def test_a_lost_reply_about_a_lease_costs_less_than_a_second(
    method: str, after: bool
) -> None:
    store = FaultyStore(MemoryStore())
    quiet = Hook("run.started", lambda context, event: None)  # so that the lease is asked for
    async with serve(helper(hooks=[quiet]), "hi", store=store) as harness:
        session = await harness.get_or_create("s")
        store.plan.append(Fail(method=method, call=1, after=after))
        for _ in range(2):
            begun = asyncio.get_running_loop().time()
            assert (await session.send("go")).text == "hi"
            assert asyncio.get_running_loop().time() - begun < 1


@pytest.mark.parametrize(("recovery", "status"), [("resume", "done"), ("close", "interrupted")])
@virtual_time
async def test_the_next_driver_takes_up_a_run_whose_driver_died_right_after_its_start(
    recovery: Any, status: str
) -> None:
    store, slow = MemoryStore(), Slow()
    dead = serve(helper(), default_model=slow, store=FaultyStore(store))
    await dead.__aenter__()
    session = await dead.get_or_create("s")
    await session.post("go")
    await slow.gate.someone()
    lease = await store.acquire(key("s"), "the next", steal="its driver is gone")
    await store.release(lease)
    async with Harness(
        helper(), default_model=script("hi"), store=store, recovery=recovery
    ) as harness:
        other = await harness.get_or_create("s")
        assert (await other.wait()).status == status
        resumed = only(await other.events(), "run.resumed")
        assert [event["reason"] for event in resumed] == ["driver_lost"]
    await dead.aclose(grace=0)


async def test_snapshots_are_still_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_loader, "SNAPSHOT", 20)
    store = FaultyStore(MemoryStore())
    async with serve(helper(), "hi", store=store) as harness:
        session = await harness.get_or_create("s")
        for _ in range(10):
            await session.send("go")
        await until(lambda: store.calls["save_snapshot"] >= 2)
        found = await store.load_snapshot(key("s"), VERSION)
        assert found is not None
        assert found.seq > 20
