"""Workers take up due sessions in turn over tenants and users. The bounds are counts of turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, InvalidValue, Sessions, Store, Worker, connect
from holdfast.models.port import Chunk, EndChunk, FromUser, ModelCall, TextChunk
from holdfast.models.scripted import text_of
from tests.contract.test_stores import url_of

PATIENCE = 60.0
MANY = {"memory": 2_000, "sqlite": 150, "postgres": 150}
SLOTS = 4
BATCH = SLOTS // 4  # a worker searches again when a quarter of the slots is free
NEVER = 100_000.0  # the tests search themselves


class Gate:
    """A model that answers when it is allowed to. `started` has the text of each turn in order."""

    ref = "gate/one"

    def __init__(self) -> None:
        self.started: list[str] = []
        self._changed = asyncio.Condition()
        self._permits = asyncio.Semaphore(0)
        self.ended = 0

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        async with self._changed:
            self.started.append(
                text_of([each for each in call.messages if isinstance(each, FromUser)][-1])
            )
            self._changed.notify_all()
        await self._permits.acquire()
        self.ended += 1
        yield TextChunk("done")
        yield EndChunk("stop", {})

    async def reached(self, count: int) -> list[str]:
        """Wait for a number of turns to begin, and return all so far."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: len(self.started) >= count)
        return self.started

    def release(self, count: int) -> None:
        for _ in range(count):
            self._permits.release()

    async def until(self, *texts: str) -> int:
        """Let turns end, batch after batch, until all these texts had a turn. Returns how many
        turns began before the last of them."""
        before = len(self.started)
        while not {*texts} <= {*self.started}:
            count = len(self.started)
            self.release(BATCH)
            await self.reached(count + BATCH)
        return max(self.started.index(text) for text in texts) - before


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(kind: str, tmp_path: Path) -> AsyncGenerator[Store, None]:
    async with url_of(kind, tmp_path) as url, connect(url) as store:
        yield store


@pytest.fixture
def gate() -> Gate:
    return Gate()


@asynccontextmanager
async def worker(store: Store, gate: Gate, **settings: Any) -> AsyncIterator[Worker]:
    known: Any = {"parallel_recovery": SLOTS, "poll": NEVER, "default_model": gate, **settings}
    agent = Agent("clerk", instructions="Help.")
    async with Worker(agent, tenants="all", store=store, **known) as one:
        try:
            yield one
        finally:
            gate.release(100_000)


async def post(store: Store, tenant: str, text: str, user: str | None = None) -> None:
    await Sessions(store, tenant=tenant).post(text, text, agent="clerk", user=user)


async def backlog(store: Store, tenant: str, count: int, user: str | None = None) -> None:
    await asyncio.gather(*(post(store, tenant, f"{tenant}-{user}-{n}", user) for n in range(count)))


async def test_a_tenant_with_many_sessions_does_not_delay_the_first_message_of_another(
    kind: str, store: Store, gate: Gate
) -> None:
    await backlog(store, "acme", MANY[kind])
    async with worker(store, gate) as one:
        assert all(text.startswith("acme") for text in await gate.reached(SLOTS))
        await post(store, "globex", "first of globex")
        await post(store, "zulu", "first of zulu")
        await one.look()
        # One turn of each tenant in front, and what is taken up together with it
        assert await gate.until("first of globex", "first of zulu") < 3 + BATCH


async def test_a_user_with_many_sessions_does_not_delay_the_first_message_of_another(
    kind: str, store: Store, gate: Gate
) -> None:
    await backlog(store, "acme", MANY[kind], "ann")
    async with worker(store, gate) as one:
        await gate.reached(SLOTS)
        await post(store, "acme", "first of bob", "bob")
        await post(store, "acme", "first of cy", "cy")
        await one.look()
        assert await gate.until("first of bob", "first of cy") < 3 + BATCH


async def test_every_tenant_and_user_is_among_the_first(store: Store, gate: Gate) -> None:
    for tenant, user, count in (("acme", "ann", 20), ("acme", "bob", 5), ("globex", "eve", 5)):
        await backlog(store, tenant, count, user)
    async with worker(store, gate):
        begun = await gate.reached(SLOTS)
        assert all(any(name in text for text in begun) for name in ("ann", "bob", "eve"))


async def test_two_workers_drive_each_session_once(store: Store, gate: Gate) -> None:
    await backlog(store, "acme", 40, "ann")
    await backlog(store, "acme", 3, "bob")
    gate.release(100_000)
    async with worker(store, gate, poll=0.02), worker(store, gate, poll=0.02):
        await gate.reached(43)
    assert len(gate.started) == len({*gate.started}) == 43


async def test_a_limit_per_tenant_leaves_slots_to_others(store: Store, gate: Gate) -> None:
    await backlog(store, "acme", 10)
    async with worker(store, gate, tenant_limit=2) as one:
        assert len(await gate.reached(2)) == 2
        await backlog(store, "globex", 1)
        await one.look()
        assert sorted(text[:4] for text in await gate.reached(3)) == ["acme", "acme", "glob"]
        while (count := len(gate.started)) < 11:
            gate.release(2)  # one of them may be the turn of the other tenant
            await gate.reached(count + 1)
            acme = sum(text.startswith("acme") for text in gate.started)
            assert acme - gate.ended <= 2


async def test_a_limit_per_agent_holds_over_all_tenants(store: Store, gate: Gate) -> None:
    for tenant in ("acme", "globex"):
        await backlog(store, tenant, 5)
    async with worker(store, gate, agent_limit=3) as one:
        for ended in range(7):
            assert len(await gate.reached(3 + ended)) - gate.ended == 3
            await one.look()
            assert len(gate.started) == 3 + ended
            gate.release(1)
        await gate.reached(10)


@pytest.mark.parametrize("name", ["tenant_limit", "agent_limit"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_bad_limits_are_rejected(name: str, value: Any) -> None:
    agent = Agent("clerk", instructions="Help.")
    with pytest.raises(InvalidValue, match=name):
        Worker(agent, tenants="all", default_model="scripted/offline", **{name: value})
