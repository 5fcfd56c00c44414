"""Sessions, agents and answers that nobody needs any more: let go of, but not while something goes
on in them; and work done once, although it could not say in time that it goes on."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Agent, Query, StoreUnavailable, SubAgent, tool
from holdfast.errors import UnknownAgent
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import ServerLimits
from holdfast.server import service as service_module
from holdfast.server.app import service_of
from holdfast.server.auth import idempotency as once_module
from holdfast.server.auth.idempotency import IdempotencyStore, KeyedRequest, StoredResponse
from holdfast.server.engines import TenantStore
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore

from .scene import PATIENCE, engine, serving, settings
from .test_once import ANN


async def test_a_session_is_not_closed_while_a_sub_agent_works_for_it() -> None:
    begun, go, cut = asyncio.Event(), asyncio.Event(), list[str]()

    @tool
    async def deploy(what: str) -> str:
        """Deploy something."""
        begun.set()
        try:
            await go.wait()
        except asyncio.CancelledError:
            cut.append(what)
            raise
        return "deployed"

    hand = Use("subagent", agent="worker", task="Do it.")
    model = ScriptedModel.by_input(
        {
            "Go.": [Say(calls=[hand]), "All is well."],
            "Do it.": [Say(calls=[Use("deploy", what="app")]), "It is up."],
        }
    )
    worker = SubAgent("worker", "works", instructions="Work.", tools=["deploy"])
    agent = Agent("lead", instructions="Lead.", tools=[deploy], subagents=[worker])
    limits = ServerLimits(rate=None, idle_seconds=0.2)
    made = settings(agents=[agent], harness={"default_model": model}, limits=limits)
    async with serving(made) as api, asyncio.timeout(PATIENCE):
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages", {"content": "Go."})
        await begun.wait()
        await api.until("/sessions/one/status", lambda status: status["phase"] != "running")
        await api("PUT", "/sessions/two")
        await api("GET", "/sessions/two/status")  # used later than the other
        (harness,) = [one for one in engine(api.app).harnesses if one.tenant == "acme"]
        while harness.get("two") is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert harness.get("one") is not None
        assert harness.drives("one")
        go.set()
        told = await api.until("/sessions/one/transcript", lambda found: "All is" in str(found))
        assert told["items"][-1]["text"] == "All is well."
        assert cut == []
        while harness.get("one") is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("error", [StoreUnavailable(problem="away"), OSError("reset")])
async def test_work_goes_on_alone_when_a_renewal_failed(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once_module, "TTL", 0.9)
    inner = MemoryStore()
    store = FaultyStore(inner, [Fail(method="renew", call=1, error=error)])
    begun = asyncio.Event()
    done: list[bool] = []

    async def works(record: str, again: bool) -> StoredResponse:
        done.append(again)
        begun.set()
        while store.calls["renew"] < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return StoredResponse(hash="h", status=200)

    asked = KeyedRequest(key="k", hash="h")
    async with asyncio.timeout(PATIENCE):
        first = asyncio.create_task(IdempotencyStore(store).do(ANN, asked, works))
        await begun.wait()
        second = await IdempotencyStore(inner).do(ANN, asked, works)
        assert second == await first
    assert done == [False]


async def test_answers_are_forgotten_also_of_tenants_that_are_not_looked_for_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_module, "SWEEP", 0.05)
    monkeypatch.setattr(IdempotencyStore.sweep, "__kwdefaults__", {"older": -60})
    made = settings(limits=ServerLimits(rate=None, tenants=1), tenants=["acme"])
    async with serving(made) as api, asyncio.timeout(PATIENCE):
        store = await service_of(api.app).places.store()
        for tenant in ("acme", "other"):
            await api("POST", "/sessions", {}, key="k", by=f"ann@{tenant}")
            while (await store.find(Query(tenant=f"~once:{tenant}"))).items:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_an_agent_that_two_tenants_brought_is_served_while_one_needs_it() -> None:
    brought = Agent("brought", instructions="Help.")
    async with serving() as api:
        one, store = engine(api.app), await service_of(api.app).places.store()
        mine, theirs = TenantStore("acme", "memory", store), TenantStore("other", "memory", store)
        for place in (mine, theirs):
            one.adopt(brought, place.tenant)
        await one.take_up(mine, "brought")
        await one.drop(mine, "brought")
        assert not one.has_adopted("brought", "acme")
        await one.take_up(theirs, "brought")
        await one.drop(theirs, "brought")
        with pytest.raises(UnknownAgent):
            await one.take_up(theirs, "brought")
