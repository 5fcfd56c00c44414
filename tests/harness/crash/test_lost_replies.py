"""Lost replies and dead drivers on real stores, where the lease is part of the append: the message
is answered without waiting until a lease expires."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import Harness, Hook, connect, key
from holdfast.harness.live import log_loader
from holdfast.log.state.values import VERSION
from holdfast.testing.faults import Fail, FaultyStore

from ...crash.places import url
from ..kernel.scene import Slow, helper, kinds, only, script, serve, until
from ..kernel.test_run_start import ADDING, add

KINDS = ["sqlite", "file", "postgres", "mongodb"]
TTL = 60.0  # seconds: whoever waits for a lease exceeds PATIENCE
PATIENCE = 30.0


@pytest.mark.parametrize("kind", KINDS)
async def test_no_lost_reply_to_an_append_waits_for_a_lease(kind: str, tmp_path: Path) -> None:
    async with connect(url(kind, tmp_path)) as inner:
        store = FaultyStore(inner)
        agent = helper(tools=[add])
        async with serve(agent, *ADDING, store=store, ttl=TTL) as harness:
            session = await harness.get_or_create("s")
            for after in (False, True):
                for call in (1, 2, 3, 4):
                    store.calls.clear()
                    store.plan[:] = [Fail(method="append", call=call, after=after)]
                    async with asyncio.timeout(PATIENCE):
                        assert (await session.send("go")).text == "three"
                    await until(lambda: store.calls["append"] >= 5)  # one is repeated
                    assert store.calls["append"] <= 6  # the message was written by itself
            found = await kinds(session)
            assert found.count("tool.finished") == found.count("run.finished") == 8
            assert "run.resumed" not in found


@pytest.mark.parametrize("kind", KINDS)
async def test_no_lost_reply_about_a_lease_waits_until_it_expires(
    kind: str, tmp_path: Path
) -> None:
    hook = Hook("run.started", lambda context, event: None)  # so that the lease is asked for
    async with connect(url(kind, tmp_path)) as inner:
        store = FaultyStore(inner)
        async with serve(helper(hooks=[hook]), "hi", store=store, ttl=TTL) as harness:
            session = await harness.get_or_create("s")
            for method in ("acquire", "release"):
                for after in (False, True):
                    store.calls.clear()
                    store.plan[:] = [Fail(method=method, call=1, after=after)]
                    for _ in range(2):
                        async with asyncio.timeout(PATIENCE):
                            assert (await session.send("go")).text == "hi"


@pytest.mark.parametrize("kind", KINDS)
async def test_messages_that_are_sent_at_once_keep_their_order(kind: str, tmp_path: Path) -> None:
    async with (
        connect(url(kind, tmp_path)) as store,
        serve(helper(), "hi", store=store) as harness,
    ):
        session = await harness.get_or_create("s")
        for turn in range(3):
            texts = [f"{turn}/{n}" for n in range(8)]
            await asyncio.gather(*(session.post(text) for text in texts))
            await session.wait()
            sent = only(await session.events(), "message.received")
            assert [message["text"] for message in sent[-8:]] == texts


@pytest.mark.parametrize("kind", KINDS)
async def test_snapshots_are_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_loader, "SNAPSHOT", 20)
    async with connect(url(kind, tmp_path)) as inner:
        store = FaultyStore(inner)
        async with serve(helper(), "hi", store=store) as harness:
            session = await harness.get_or_create("s")
            for _ in range(10):
                await session.send("go")
            await until(lambda: store.calls["save_snapshot"] >= 2)
            found = await store.load_snapshot(key("s"), VERSION)
            assert found is not None
            assert found.seq > 20


@pytest.mark.parametrize(("recovery", "status"), [("resume", "done"), ("close", "interrupted")])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_next_driver_takes_up_a_run_whose_driver_died_right_after_its_start(
    kind: str, recovery: Any, status: str, tmp_path: Path
) -> None:
    async with connect(url(kind, tmp_path)) as store:
        slow = Slow()
        dead = serve(helper(), default_model=slow, store=FaultyStore(store), ttl=TTL)
        await dead.__aenter__()
        session = await dead.get_or_create("s")
        await session.post("go")
        await slow.gate.someone()
        assert (await kinds(session))[-3:] == ["message.received", "run.started", "model.called"]
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
