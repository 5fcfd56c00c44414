"""Logs that no harness wrote: a replay of them ends, and says what it found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator

import msgspec
import pytest

from holdfast import NewEvent
from holdfast.bundle import replay
from holdfast.events import Event, Key
from holdfast.harness.replay import player
from holdfast.stores.memory import MemoryStore

from .scenes import KEY, PATIENCE, SCENES, SCOPE, shop


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not go on is given up soon."""
    monkeypatch.setattr(player, "PATIENCE", 0.2)


async def put(store: MemoryStore, key: Key, events: list[Event]) -> None:
    async def numbered() -> AsyncGenerator[Event, None]:
        for place, event in enumerate(events, 1):
            yield msgspec.structs.replace(event, seq=place)

    await store.restore(key, numbered())


@pytest.mark.parametrize("seed", range(6))
async def test_a_log_in_disorder_is_told_and_never_hangs(seed: int) -> None:
    chance, source = random.Random(seed), MemoryStore()
    agent = await SCENES[chance.choice(["subagents", "aborted", "repeated", "question"])](source)
    store = MemoryStore()
    for key in list(source._logs):
        first, *events = [event async for event in source.read(key)]
        gone = chance.randrange(len(events))
        del events[gone]
        here, there = chance.randrange(len(events)), chance.randrange(len(events))
        events[here], events[there] = events[there], events[here]
        await put(store, key, [first, *events])
    for who in (None, agent):
        async with asyncio.timeout(PATIENCE):
            found = await replay((store, SCOPE), who)
        assert found.same == (found.first is None)
        assert found.stopped in ("end", "diverged")


async def test_threads_that_wait_for_each_other_end() -> None:
    store = MemoryStore()

    def settled(call: str) -> NewEvent:
        answer = {"id": f"{call}!sub", "outcome": "answered", "answer": "x"}
        return NewEvent.of("pending.settled", answer, id=f"settle:{call}!sub")

    created = NewEvent.of("session.created", {"agent": "shop"})
    await store.append(KEY, [created, settled("a")], create=True)
    for mine, other in (("a", "b"), ("b", "a"), ("c", "c")):
        began = NewEvent.of("thread.created", {"agent": "shop/x", "parent": "main"})
        where = Key("main", "s", f"sub/{mine}")
        await store.append(where, [began, settled(other)], create=True)
    async with asyncio.timeout(PATIENCE):
        found = await replay((store, SCOPE))
    assert (found.same, found.threads) == (True, 4)


async def test_a_driver_that_only_looks_at_the_clock_is_told() -> None:
    store = MemoryStore()
    agent = await SCENES["plain"](store)
    events = [event async for event in store.read(KEY)]
    timer = NewEvent.of("timer.set", {"id": "t", "at": 1, "text": "Up."})
    started = next(n for n, event in enumerate(events) if event.kind == "run.started")
    odd = Event(kind=timer.kind, data=timer.data, id=timer.id, seq=1, at=events[0].at)
    other = MemoryStore()
    await put(other, KEY, [*events[:started], odd, *events[started:]])
    async with asyncio.timeout(PATIENCE):
        found = await replay((other, SCOPE), agent)
    assert found.first is not None
    assert found.stopped == "diverged"


async def test_a_log_that_nobody_drove_has_nothing_that_must_come() -> None:
    store = MemoryStore()
    talk = [
        NewEvent.of("session.created", {}),
        NewEvent.of("message.received", {"text": "Hi."}),
        NewEvent.of("message.completed", {"text": "Hello."}),
    ]
    await store.append(KEY, talk, create=True)
    found = await replay((store, SCOPE), shop())
    assert (found.same, found.compared, found.given) == (True, 0, 3)
