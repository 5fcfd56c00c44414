"""Kill -9 before and after every append of a firing; two processes take over at once, and each due
time still has one message and one run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import NewEvent, Store, connect, key
from holdfast.environment import wall_clock
from holdfast.events import MessageReceived, RunStarted, TimerScheduled, TimerTicked
from holdfast.testing.samples import read_all
from tests.crash.places import url
from tests.harness.crash.nursery import Nursery

from .life import SESSION

MINUTE = 60_000
PATIENCE = 60.0
AT_ONCE = 4
# Every append, before and after it; on a server every third of these places.
PLACES = {"sqlite": 1, "postgres": 3}


async def prepared(store: Store, tenant: str) -> list[int]:
    """A session with a schedule of which two firings were missed. Returns when they were due."""
    first = wall_clock() - 90_000
    schedule = TimerScheduled(
        name="s", text="go", next=first, every=MINUTE, missed="all", overlap="queue"
    )
    events = [
        NewEvent.of("session.created", {"agent": "helper"}),
        NewEvent.of("timer.scheduled", schedule),
    ]
    await store.append(key(SESSION, tenant=tenant), events, create=True)
    return [first, first + MINUTE]


async def judge(store: Store, tenant: str, due: list[int]) -> None:
    events = await read_all(store, key(SESSION, tenant=tenant))
    messages = [event for event in events if event.kind == "message.received"]
    sent = [event.payload(MessageReceived).metadata["due"] for event in messages]
    ticked = [e.payload(TimerTicked) for e in events if e.kind == "timer.ticked"]
    later = ticked[-1].next
    assert later is not None
    assert sent == [*range(due[0], later, MINUTE)][: len(sent)]  # each once, in order
    assert sent[: len(due)] == due
    assert (sum(one.sent for one in ticked), later) == (len(sent), due[0] + len(sent) * MINUTE)
    inputs = [e.payload(RunStarted).inputs for e in events if e.kind == "run.started"]
    assert inputs == [[message.seq] for message in messages]


@pytest.mark.parametrize("kind", PLACES)
async def test_a_firing_survives_a_kill_at_any_append(kind: str, tmp_path: Path) -> None:
    at = url(kind, tmp_path)
    gate = asyncio.Semaphore(AT_ONCE)
    with Nursery(tmp_path, module="tests.schedules.life") as nursery:
        async with connect(at) as store:
            await prepared(store, "calm")
            calm = nursery.bear(url=at, tenant="calm")
            await calm.died()
            appends = calm.words["appends"]
            assert appends >= 5  # the firing, and the start and the end of two runs
            points = [(call, after) for call in range(1, appends + 1) for after in (False, True)]
            points = points[:: PLACES[kind]]

            async def killed(call: int, after: bool) -> None:
                tenant = f"t{call}{'a' if after else 'b'}"
                async with gate:
                    due = await prepared(store, tenant)
                    victim = nursery.bear(url=at, tenant=tenant, call=call, after=after)
                    await victim.died()
                    assert victim.words == {}  # it was killed
                    others = [nursery.bear(url=at, tenant=tenant) for _ in range(2)]
                    for other in others:
                        await other.died()
                        assert "appends" in other.words, other.words
                    await judge(store, tenant, due)

            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(killed(*point) for point in points))
