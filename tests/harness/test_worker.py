"""A worker works off the sessions of several tenants: those it serves, and no others."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Harness, InvalidAgent, InvalidValue, Sessions, Store, Worker, connect
from holdfast.errors import HarnessClosed, StoreUnavailable
from holdfast.log.events import Key
from holdfast.models import ScriptedModel
from holdfast.stores.wrapped import WrappedStore
from tests.contract.test_stores import url_of

PATIENCE = 60.0
MODEL: Any = ScriptedModel(["done"], repeat=True)
AGENT = Agent("clerk", instructions="Help.")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    async with url_of(request.param, tmp_path) as url, connect(url) as store:
        yield store


def worker(store: Store, **settings: Any) -> Worker:
    return Worker(
        AGENT, **{"tenants": "all", "default_model": MODEL, "poll": 0.02, **settings}, store=store
    )


async def post(store: Store, tenant: str, session: str = "s") -> None:
    await Sessions(store, tenant=tenant).post(session, "hi", agent="clerk")


async def answers(store: Store, tenant: str, session: str = "s") -> int:
    read = store.read(Key(tenant, session, "main"))
    return sum([event.kind == "run.finished" async for event in read])


async def answered(store: Store, tenant: str, session: str = "s", count: int = 1) -> None:
    async with asyncio.timeout(PATIENCE):
        while await answers(store, tenant, session) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_all_tenants_are_worked_off_also_new_ones(store: Store) -> None:
    await post(store, "acme")
    async with worker(store):
        await answered(store, "acme")
        await post(store, "globex")
        await post(store, "acme", "other")
        await answered(store, "globex")
        await answered(store, "acme", "other")
        await post(store, "acme")  # the session is open in the worker by now
        await answered(store, "acme", count=2)


async def test_tenants_that_are_not_listed_are_left_alone(store: Store) -> None:
    for tenant in ("acme", "globex", "zulu"):
        await post(store, tenant)
    async with worker(store, tenants=["acme", "zulu"]) as one:
        await answered(store, "zulu")
        with pytest.raises(
            InvalidValue, match=r"is 'globex', which this worker does not serve.*acme, zulu"
        ):
            await one.harness("globex")
    assert await answers(store, "globex") == 0


async def test_two_workers_answer_each_message_once(store: Store) -> None:
    sessions = [(tenant, f"s{n}") for tenant in ("acme", "globex") for n in range(5)]
    async with worker(store), worker(store):
        for tenant, session in sessions:
            await post(store, tenant, session)
        for tenant, session in sessions:
            await answered(store, tenant, session)
    assert [await answers(store, *each) for each in sessions] == [1] * len(sessions)


async def test_the_limit_of_recovered_sessions_holds_over_all_tenants(store: Store) -> None:
    async with worker(store, parallel_recovery=1) as one:
        for tenant in ("acme", "globex", "zulu"):
            await post(store, tenant)
        for tenant in ("acme", "globex", "zulu"):
            await answered(store, tenant)
        first, second = await one.harness("acme"), await one.harness("globex")
        assert first._slots is second._slots is not None


class WithoutAcme(WrappedStore):
    """A store that cannot read what is due of one tenant."""

    async def runnable(self, tenant: str, **options: Any) -> list[Key]:
        if tenant == "acme":
            raise StoreUnavailable(problem="lost")
        return await self.inner.runnable(tenant, **options)


async def test_a_tenant_that_fails_does_not_hold_up_the_others(store: Store) -> None:
    for tenant in ("acme", "globex"):
        await post(store, tenant)
    async with worker(WithoutAcme(store)) as one:
        await answered(store, "globex")
        with pytest.raises(StoreUnavailable):
            await one.look()
    assert await answers(store, "acme") == 0


async def test_a_tenant_with_many_due_sessions_does_not_hold_up_the_others() -> None:
    model = ScriptedModel(["done"], repeat=True)
    async with connect("memory:") as store:
        for number in range(50):
            await post(store, "acme", f"s{number}")
        await Sessions(store, tenant="zulu").post("s", "from zulu", agent="clerk")
        async with worker(store, parallel_recovery=1, default_model=model):
            await answered(store, "zulu")
        (place,) = (n for n, call in enumerate(model.calls) if "from zulu" in str(call.messages))
        assert place <= 1


async def test_a_harness_of_a_tenant_has_the_sessions_of_this_tenant() -> None:
    async with Worker(AGENT, tenants="all", default_model=MODEL) as one:
        acme, globex = await one.harness("acme"), await one.harness("globex")
        assert (await acme.send("s", "hi")).text == "done"
        assert [row.session for row in (await acme.list()).items] == ["s"]
        assert (await globex.list()).items == []
        assert await one.harness("acme") is acme
    with pytest.raises(HarnessClosed):
        await one.harness("acme")


async def test_tenants_of_the_server_are_not_served() -> None:
    async with Worker(AGENT, tenants="all", default_model=MODEL) as one:
        with pytest.raises(InvalidValue, match="does not begin with '~'"):
            await one.harness("~keys")


@pytest.mark.parametrize("tenants", ["acme", [], None, 3, [""], ["a", "\ud800"]])
def test_bad_tenants_are_rejected(tenants: Any) -> None:
    with pytest.raises(InvalidValue, match="tenants"):
        Worker(AGENT, tenants=tenants, default_model=MODEL)


@pytest.mark.parametrize("name", ["poll", "idle"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), "1", None])
def test_bad_times_are_rejected(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=name):
        Worker(AGENT, tenants="all", default_model=MODEL, **{name: value})


def test_settings_of_the_harness_are_checked_at_once() -> None:
    with pytest.raises(InvalidAgent, match="ttl"):
        Worker(AGENT, tenants="all", default_model=MODEL, ttl=-1)
    with pytest.raises(InvalidValue, match=r"tenants=\[...\]"):
        Worker(AGENT, tenants="all", default_model=MODEL, tenant="acme")


async def test_a_worker_of_a_harness_serves_also_without_lookers() -> None:
    """A harness with the same store sees what the worker answered."""
    store = await connect("memory:")
    async with (
        worker(store),
        Harness(
            AGENT, default_model=MODEL, store=store, tenant="acme", recovery="leave"
        ) as harness,
    ):
        await post(store, "acme")
        session = await harness.open("s")
        assert (await session.wait()).text == "done"
    await store.aclose()


RUN = """
import asyncio
from holdfast import Agent, Worker
from holdfast.models import offline

async def main():
    agent = Agent("clerk", instructions="Help.")
    async with Worker(agent, tenants="all", store="sqlite:w.db", default_model=offline()) as worker:
        print("started", flush=True)
        await worker.run()
    print("closed", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_run_ends_when_the_process_is_asked_to_terminate(
    number: signal.Signals, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUN, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await process.stdout.readline() == b"started\n"
        async with connect(f"sqlite:{tmp_path}/w.db") as store:
            await post(store, "acme")
            await answered(store, "acme")
        process.send_signal(number)
        assert await process.stdout.readline() == b"closed\n"
        assert await process.wait() == 0
