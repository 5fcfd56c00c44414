"""A clock that was days ahead and is set back: nothing that it stamped blocks anybody until it is
there again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from holdfast import LeaseHeld, LeaseLost, NewEvent, Store, key
from holdfast.events import Scope
from holdfast.log.catalog import SKEW
from holdfast.stores.copy import copy_session
from holdfast.stores.memory import MemoryStore
from holdfast.stores.rules import LONGEST_LEASE, LeaseState, lease_left
from holdfast.testing.samples import read_all
from tests.sessions.places import OPEN, emptied
from tests.sessions.scene import Clock

from .checks.clocks import set_back
from .places import KINDS

AT = key("s")
DAYS = 2 * 86_400
MS = 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=OPEN)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncGenerator[Store, None]:
    async with emptied(request.param, tmp_path) as place:
        store = await OPEN[request.param](place, clock)
        try:
            yield store
        finally:
            await store.aclose()


async def begin(store: Store, *more: NewEvent) -> None:
    created = NewEvent.of("session.created", {"agent": "a"})
    await store.append(AT, [created, *more], create=True)


def started() -> NewEvent:
    return NewEvent.of("run.started", {}, run="r")


async def test_a_lease_of_a_clock_that_was_set_back_has_lapsed(store: Store, clock: Clock) -> None:
    clock.go(DAYS)
    await begin(store, started())
    dead = await store.acquire(AT, "dead", ttl=5)
    assert await store.runnable("main", agents=["a"]) == []
    clock.go(-DAYS)
    assert await store.runnable("main", agents=["a"]) == [AT]
    lease = await store.acquire(AT, "next", ttl=5)
    assert lease.token > dead.token
    assert (lease.since, lease.until) == (clock.ms, clock.ms + 5 * MS)
    assert await store.runnable("main", agents=["a"]) == []
    with pytest.raises(LeaseLost):
        await store.append(AT, [NewEvent.of("note.made")], fence=dead)
    with pytest.raises(LeaseHeld) as held:
        await store.acquire(AT, "third")
    assert (held.value.owner, held.value.left) == ("next", 5 * MS)


async def test_a_lease_that_was_renewed_before_the_clock_was_set_back_has_lapsed(
    store: Store, clock: Clock
) -> None:
    await begin(store, started())
    lease = await store.acquire(AT, "dead", ttl=5)
    clock.go(DAYS)
    lease = await store.renew(lease)
    clock.go(-DAYS)
    assert await store.runnable("main", agents=["a"]) == [AT]
    assert (await store.acquire(AT, "next")).token > lease.token


async def test_a_driver_that_lives_keeps_its_lease_when_the_clock_is_set_back(
    store: Store, clock: Clock
) -> None:
    clock.go(DAYS)
    await begin(store, started())
    lease = await store.acquire(AT, "driver", ttl=5)
    clock.go(-DAYS)
    lease = await store.renew(lease)
    assert lease.until == clock.ms + 5 * MS
    assert await store.runnable("main", agents=["a"]) == []
    with pytest.raises(LeaseHeld) as held:
        await store.acquire(AT, "other")
    assert held.value.left == 5 * MS
    await store.append(AT, [NewEvent.of("note.made")], fence=lease)
    await store.release(lease)
    assert await store.runnable("main", agents=["a"]) == [AT]


async def test_clocks_that_differ_a_little_take_nothing_over(store: Store, clock: Clock) -> None:
    await begin(store, started())
    await store.acquire(AT, "driver", ttl=60)
    clock.ms -= SKEW
    assert await store.runnable("main", agents=["a"]) == []
    with pytest.raises(LeaseHeld) as held:
        await store.acquire(AT, "other")
    assert held.value.left == 60 * MS
    clock.ms -= 1
    assert await store.runnable("main", agents=["a"]) == [AT]
    await store.acquire(AT, "other")


async def test_a_session_is_moved_whose_driver_died_with_a_clock_ahead(
    store: Store, clock: Clock
) -> None:
    clock.go(DAYS)
    await begin(store)
    await store.acquire(AT, "dead", ttl=5)
    clock.go(-DAYS)
    target = MemoryStore()
    await copy_session(store, target, AT.scope, move=True)
    assert [event.kind for event in await read_all(target, AT)][:1] == ["session.created"]
    row = await store.row(AT)
    assert row is not None
    assert row.sealed is not None


async def test_a_message_that_came_while_the_clock_was_ahead_is_taken_up(
    store: Store, clock: Clock
) -> None:
    clock.ms += DAYS * MS + 1
    await begin(store, NewEvent.of("message.received", {"text": "hi"}))
    clock.ms -= DAYS * MS
    assert await store.runnable("main", agents=["a"]) == [AT]
    await store.append(AT, [NewEvent.of("label.added", {"label": "vip"})])
    assert await store.runnable("main", agents=["a"]) == [AT]
    due = {"due": clock.ms + DAYS * MS + 5 * MS}
    await store.append(AT, [NewEvent.of("timer.planned", due)])
    assert await store.runnable("main", agents=["a"]) == []


async def test_a_delete_leaves_nothing_that_came_while_the_clock_was_ahead(
    store: Store, clock: Clock
) -> None:
    clock.go(DAYS)
    await begin(store)
    ref = await store.put_blob(AT.scope, b"private")
    await store.claim("main", "name", AT.scope)
    clock.go(-DAYS)
    receipt = await store.delete(AT.scope)
    assert (receipt.removed.get("blobs"), receipt.removed.get("claims")) == (1, 1)
    other = Scope("main", "other")
    assert await store.claim("main", "name", other) == other
    await begin(store)
    assert ref not in await store.blobs(AT.scope)


@pytest.mark.parametrize(
    ("until", "renewed", "left"),
    [
        (5_000, 0, 5_000),  # of an older program, which did not write when it was renewed
        (LONGEST_LEASE + SKEW, 0, LONGEST_LEASE + SKEW),
        (LONGEST_LEASE + SKEW + 1, 0, 0),
        (5_000, -60_000, 5_000),  # of an older program, after a newer one
        (15_000 + SKEW, SKEW, 15_000),  # of a clock that is a little ahead
        (15_000 + SKEW, SKEW + 1, 0),
        (0, -5_000, 0),
    ],
)
def test_how_long_a_lease_is_live(until: int, renewed: int, left: int) -> None:
    now = 1_800_000_000_000
    at = now + renewed if renewed else 0
    state = LeaseState(token=1, owner="o", since=now, until=now + until, renewed=at)
    assert lease_left(state, now) == left


@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_that_died_with_a_clock_ahead_is_taken_over(kind: str, tmp_path: Path) -> None:
    outcome = set_back(kind, tmp_path, rounds=2)
    assert outcome.problems == []
    assert outcome.counts["takeovers"] == 2
