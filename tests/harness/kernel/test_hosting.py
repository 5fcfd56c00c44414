"""Several hosts, one store: who drives, who only listens, and what is handed over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Harness, InvalidValue, SessionNotFound, connect, sync
from holdfast.models.scripted import ScriptedModel

from .scene import Slow, helper, names, script, serve, until


async def test_two_hosts_of_one_session_drive_it_once(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    one, two = Slow("One"), Slow("Two")
    async with (
        serve(helper(), default_model=one, store=storage) as first,
        serve(helper(), default_model=two, store=storage) as second,
    ):
        here, there = await first.get_or_create("s"), await second.get_or_create("s")
        listener = there.subscribe()
        sent = asyncio.create_task(here.send("go"))
        await one.gate.someone()
        await until(lambda: there.status.phase == "waiting_model")
        await there.post("and then?")
        await until(lambda: here.status.queued == 1)
        assert two.calls == []
        await there.abort("enough", actor="bob")
        assert (await sent).status == "aborted"
        one.gate.open()
        two.gate.open()
        await here.wait()
        await until(lambda: there.status.phase == "idle")
        assert len(one.calls) + len(two.calls) == 2
        assert await here.events() == await there.events()
        listener.close()
        seen = [item async for item in listener]
        assert names(seen).count("run.started") == 2


async def test_what_one_host_lets_go_another_takes_up(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    slow = Slow()
    quick = script("taken over")
    async with serve(helper(), default_model=quick, store=storage, ttl=0.2) as second:
        first = serve(helper(), default_model=slow, store=storage, ttl=60)
        session = await first.get_or_create("s")
        await session.post("go")
        await slow.gate.someone()
        await first.aclose(grace=0.05)
        other = await second.get_or_create("s")
        assert (await other.wait()).text == "taken over"


async def test_a_host_leaves_alone_what_it_is_told_to_leave(tmp_path: Path) -> None:
    from holdfast import NewEvent, key

    storage = f"sqlite:{tmp_path}/x.db"
    async with serve(helper(), "hi", store=storage) as harness:
        await harness.send("s", "one")
    store = await connect(storage)
    await store.append(key("s"), [NewEvent.of("message.received", {"text": "two"})])
    await store.aclose()
    async with serve(helper(), "hi", store=storage, recovery="leave") as harness:
        assert (await harness.list(active=True)).items == []
        row = await harness.store.row(key("s"))
        assert row is not None
        assert row.head == 8
    async with serve(helper(), "hi", store=storage) as harness:
        session = await harness.get_or_create("s")
        await session.wait()
        assert len(await session.transcript()) == 4


async def test_two_agents_share_a_store_and_not_their_sessions(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"

    def make(label: str) -> Harness:
        model = ScriptedModel([label], repeat=True)
        return serve(helper(label=label), default_model=model, store=storage)

    async with make("One") as one, make("Two") as two:
        assert (await one.send("a", "hi")).text == "One"
        assert (await two.send("b", "hi")).text == "Two"
        assert [row.key.session for row in (await one.list()).items] == ["a"]
        with pytest.raises(InvalidValue, match="'one'"):
            await two.get_or_create("a")


async def test_tenants_do_not_see_each_other() -> None:
    store = await connect("memory:")
    async with (
        serve(helper(), "hi", store=store, tenant="red") as red,
        serve(helper(), "hi", store=store, tenant="blue") as blue,
    ):
        await red.send("s", "secret")
        assert await (await blue.get_or_create("s")).transcript() == []
        assert len((await red.list()).items) == 1
    await store.aclose()


async def test_sessions_of_one_host_run_side_by_side() -> None:
    model = Slow(quick=["quick"])
    async with serve(helper(), default_model=model) as harness:
        slow = asyncio.create_task(harness.send("slow", "go"))
        await model.gate.someone()
        assert (await harness.send("quick", "quick")).status == "done"
        assert not slow.done()
        model.gate.open()
        assert (await slow).status == "done"


async def test_waiting_for_nothing_is_no_wait() -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        result = await session.wait()
        assert (result.status, result.run, result.text) == ("done", None, "")
        await session.abort()  # of nothing: it changes nothing
        assert (await session.send("go")).text == "hi"


async def test_a_stored_session_is_opened_and_one_that_is_not_there_is_named(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path / 'shop.db'}"
    async with serve(helper(), "hi", store=store) as harness:
        await harness.send("customer-42", "go")
    async with serve(helper(), "hi", store=store) as harness:
        assert harness.get("customer-42") is None
        session = await harness.open("customer-42")
        assert harness.get("customer-42") is session
        assert [m.text for m in await session.transcript()] == ["go", "hi"]
        with pytest.raises(SessionNotFound, match=r"session 'nobody'.*: check the id, or create"):
            await harness.open("nobody")
        assert (await harness.list()).items[0].session == "customer-42"
        assert len((await harness.list()).items) == 1


def test_so_it_is_without_await(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'shop.db'}"
    with sync.Harness(helper(), default_model=script("hi"), store=store) as harness:
        harness.send("customer-42", "go")
    with sync.Harness(helper(), default_model=script("hi"), store=store) as harness:
        assert harness.get("customer-42") is None
        assert len(harness.open("customer-42").transcript()) == 2
        with pytest.raises(SessionNotFound, match=r"session 'nobody'.*: check the id, or create"):
            harness.open("nobody")
