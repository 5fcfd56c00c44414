"""Many sessions that nobody drives: a process that starts takes all of them up, without waiting for
its next look, some at a time, and lets go of each when it is done."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Agent,
    Harness,
    LogConfig,
    NewEvent,
    Store,
    StoreUnavailable,
    ToolContext,
    connect,
    key,
    tool,
)
from holdfast import events as ev
from holdfast.events import Key
from holdfast.harness.host import sessions_of
from holdfast.log.catalog import Row
from holdfast.models.port import Chunk, EndChunk, ModelCall, TextChunk
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.testing.faults import FaultyStore
from tests.servers import url

from ..kernel.scene import PATIENCE, until

AGENT = Agent("Late", instructions="Answer.")
NEVER = 3600.0  # seconds of a lease: half of it is the time until the next look
MANY, ROOM = 450, 40


class Busy:
    """A model that notes who has been answered, and how many it talks to at once."""

    ref = "busy/model"

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self.now = self.most = 0

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)  # so that others can be met here
        self.now -= 1
        self.answered[call.session or ""] += 1
        yield TextChunk("Here I am.")
        yield EndChunk()


async def left(store: Store, number: int) -> list[str]:
    """Sessions with a message that nobody has answered; their ids."""
    ids = [f"s{n:04}" for n in range(number)]
    for n in range(0, number, 50):
        await asyncio.gather(*(asked(store, id) for id in ids[n : n + 50]))
    return ids


async def asked(store: Store, id: str) -> None:
    created = NewEvent.of("session.created", ev.SessionCreated(agent=AGENT.key))
    message = NewEvent.of("message.received", ev.MessageReceived(text="Is anybody there?"))
    await store.append(key(id), [created, message], create=True)


def serving(store: Store, model: Busy, **settings: Any) -> Harness:
    given = {"parallel_recovery": ROOM, "ttl": NEVER, "logging": LogConfig(level="silent")}
    return Harness(AGENT, default_model=model, store=store, **{**given, **settings})


async def at_rest(store: Store, harness: Harness, ids: list[str]) -> None:
    """Wait until all are answered and let go of."""
    drivers = sessions_of(harness).drivers
    logs = sessions_of(harness).logs
    await until(lambda: not any(drivers.busy(id) for id in ids) and not list(logs))
    for id in ids:
        row = await store.row(key(id))
        assert row is not None
        assert (row.run, row.due) == ("done", None)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_all_sessions_without_a_driver_are_answered_some_at_a_time(
    kind: str, tmp_path: Path
) -> None:
    model = Busy()
    place = url(kind, tmp_path) if kind == "postgres" else f"{kind}:{tmp_path / 's.db'}"
    async with connect(place) as inner, asyncio.timeout(4 * PATIENCE):
        ids = await left(inner, MANY)
        store = FaultyStore(inner)
        async with serving(store, model) as harness:
            await until(lambda: len(model.answered) == MANY)
            await at_rest(store, harness, ids)
            assert (await harness.list(active=True)).items == []
            assert set(model.answered.values()) == {1}
            assert 1 < model.most <= ROOM
            looks = store.calls["runnable"]
            assert looks <= 2 + MANY // (ROOM // 4)
            for _ in range(200):
                await asyncio.sleep(0)
            assert store.calls["runnable"] == looks  # nobody looks again and again


class Shut(FaultyStore):
    """A store in which some sessions cannot be opened; `tried` counts how often somebody did."""

    def __init__(self, store: Store, shut: set[str]) -> None:
        super().__init__(store)
        self.shut, self.tried = shut, Counter[str]()

    async def row(self, key: Key) -> Row | None:
        if key.session in self.shut:
            self.tried[key.session] += 1
            raise StoreUnavailable(problem="this one is away")
        return await super().row(key)


async def test_sessions_that_cannot_be_opened_hide_no_others_and_are_tried_once() -> None:
    model = Busy()
    async with connect("memory:") as inner, asyncio.timeout(PATIENCE):
        ids = await left(inner, 100)
        shut = set(ids[:30])  # these have waited for longest
        store = Shut(inner, shut)
        async with serving(store, model, parallel_recovery=10) as harness:
            await until(lambda: len(model.answered) == 70)
            await at_rest(store, harness, ids[30:])
            assert set(model.answered.values()) == {1}
            assert store.tried == Counter(dict.fromkeys(shut, 1))
            shut.clear()
            await sessions_of(harness).drivers.look()
            await until(lambda: len(model.answered) == 100)


async def test_sessions_that_cannot_be_driven_hide_no_others_and_are_left_alone() -> None:
    model = Busy()
    async with connect("memory:") as inner, asyncio.timeout(PATIENCE):
        ids = await left(inner, 100)
        for id in ids[:30]:  # written by a newer version
            await inner.append(key(id), [NewEvent.of("run.dreamt", {})])
        store = FaultyStore(inner)
        async with serving(store, model, parallel_recovery=10) as harness:
            await until(lambda: len(model.answered) == 70)
            await at_rest(store, harness, ids[30:])
            assert sorted(model.answered) == ids[30:]


async def test_what_comes_later_is_found_at_the_next_look() -> None:
    model = Busy()
    async with (
        connect("memory:") as store,
        serving(store, model, ttl=0.2, parallel_recovery=2) as harness,
        asyncio.timeout(PATIENCE),
    ):
        ids = await left(store, 9)
        await until(lambda: len(model.answered) == 9)
        await at_rest(store, harness, ids)
        assert model.most <= 2


@tool(approval="ask")
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@tool
async def shop(context: ToolContext) -> str:
    """Buy, and pay for it."""
    return (await context.invoke("pay", n=1)).content


async def test_sessions_that_wait_for_a_person_within_a_call_leave_their_room_to_others() -> None:
    agent = Agent("Late", instructions="Answer.", tools=[pay, shop])
    model = ScriptedModel([Say("I buy.", calls=[Use("shop")]), "Bought."])
    more: dict[str, Any] = {
        "ttl": 0.4,
        "parallel_recovery": 1,
        "logging": LogConfig(level="silent"),
    }
    async with connect("memory:") as store, asyncio.timeout(PATIENCE):
        await left(store, 3)
        async with Harness(agent, default_model=model, store=store, **more) as harness:
            while len((await harness.pending()).items) < 3:  # noqa: ASYNC110 - of three sessions
                await asyncio.sleep(0.01)
            await harness.aclose(grace=0.0)
