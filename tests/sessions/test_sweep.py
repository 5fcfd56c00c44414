"""Time: rows 37 to 46 and 48, and what a sweep must not touch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast import InvalidValue, NewEvent, Sessions, Store, StoreUnavailable, Sweeper, key
from holdfast.events import MessageReceived
from holdfast.testing.faults import Fail, FaultyStore, Stall
from holdfast.testing.samples import seal

from .scene import HOUR, Clock, kinds, log, row, say

parity = pytest.mark.parity
TABLE = "agent-assistant-sessions"


async def active(sessions: Sessions, *ids: str) -> None:
    for id in ids:
        await sessions.create(id, user="ann")
        await sessions.touch(id)


@parity(TABLE, 37, 43)
async def test_what_is_stale_is_suspended_and_told(sessions: Sessions, clock: Clock) -> None:
    await active(sessions, "a")
    before = await row(sessions, "a")
    at = clock.go(HOUR + 1)
    swept = await sessions.sweep_stale()
    assert (swept.suspended, swept.expired, swept.skipped) == (["a"], [], {})
    after = await row(sessions, "a")
    assert (after.phase, after.changed, after.active) == ("suspended", at, before.active)
    assert (after.surfaces, after.metadata) == (before.surfaces, before.metadata)
    last = (await log(sessions, "a"))[-1]
    assert (last.kind, last.json()) == ("session.suspended", {"reason": "stale"})
    assert (await sessions.sweep_stale()).suspended == []  # once


@parity(TABLE, 38, 39, 40)
async def test_only_what_is_older_than_the_cutoff_is_stale(
    sessions: Sessions, clock: Clock
) -> None:
    for id in ("old", "boundary", "fresh"):
        await active(sessions, id)
        clock.go(1)
    clock.go(HOUR - 3)  # `old` is as old as its time to live, and no older
    fresh = [await row(sessions, id) for id in ("old", "boundary", "fresh")]
    for ttl in (None, HOUR):
        swept = await sessions.sweep_stale(ttl)
        assert (swept.suspended, swept.expired, swept.skipped) == ([], [], {})
    assert [await row(sessions, id) for id in ("old", "boundary", "fresh")] == fresh
    clock.go(1)  # now `boundary` is
    assert (await sessions.sweep_stale()).suspended == ["old"]
    clock.go(1)
    assert (await sessions.sweep_stale(HOUR)).suspended == ["boundary"]
    assert (await row(sessions, "fresh")).phase == "active"


@parity(TABLE, 41)
async def test_the_time_to_live_is_one_hour_or_what_the_store_or_the_session_says(
    store: Store, clock: Clock
) -> None:
    usual, short = Sessions(store, clock=clock), Sessions(store, clock=clock, ttl=60)
    await usual.create("hour", user="ann")
    await short.create("minute", user="ann")
    await short.create("own", user="ann", ttl=10)
    await short.create("never", user="ann", ttl=None)
    await usual.create("changed", user="ann")
    await usual.set_ttl("changed", 20)
    for seconds, stale in ((10, []), (1, ["own"]), (10, ["changed"]), (40, ["minute"])):
        clock.go(seconds)
        assert (await usual.sweep_stale()).suspended == stale
    clock.go(HOUR)
    assert (await short.sweep_stale()).suspended == ["hour"]
    clock.go(1000 * HOUR)
    assert (await short.sweep_stale()).suspended == []
    assert (await short.sweep_stale(5)).suspended == ["never"]  # whatever it says itself


async def test_one_time_to_live_is_set_and_the_other_stays(store: Store, clock: Clock) -> None:
    sessions = Sessions(store, clock=clock, ttl=60, expiry=600)
    made = await sessions.create("a", user="ann")
    assert (made.ttl, made.expiry, made.stale_at) == (60, 600, clock.s + 60)
    assert (await sessions.set_ttl("a")).head == made.head  # nothing to write
    longer = await sessions.set_ttl("a", 90, reason="asked")
    assert (longer.ttl, longer.expiry, longer.stale_at) == (90, 600, clock.s + 90)
    assert longer.active == made.active
    for_good = await sessions.set_ttl("a", expiry=None)
    assert (for_good.ttl, for_good.expiry) == (90, None)
    never = await sessions.set_ttl("a", None)
    assert (never.ttl, never.stale_at) == (None, None)


@parity(TABLE, 42)
async def test_a_sweep_reaches_every_page_in_bounded_batches(store: Store, clock: Clock) -> None:
    sessions = Sessions(store, clock=clock)
    made = [f"s{n:03}" for n in range(250)]
    for batch in range(0, 250, 50):
        await asyncio.gather(*(sessions.create(id, user="ann") for id in made[batch : batch + 50]))
    clock.go(HOUR + 1)
    await sessions.create("fresh", user="ann")
    first = await sessions.sweep_stale(limit=30)
    assert len(first.suspended) == 30
    watched = FaultyStore(store)
    rest = await Sessions(watched, clock=clock).sweep_stale()
    assert sorted(first.suspended + rest.suspended) == made
    assert watched.calls["append"] == 220
    idle = FaultyStore(store)
    assert (await Sessions(idle, clock=clock).sweep_stale()).suspended == []
    assert idle.calls == {"find": 1}  # one look, when nothing is stale
    total = await sessions.find(phases="suspended", total=True, limit=1)
    assert total.total == 250


@parity(TABLE, 44)
async def test_what_is_touched_between_look_and_write_stays_active(
    store: Store, clock: Clock
) -> None:
    sessions = Sessions(store, clock=clock)
    await active(sessions, "a", "b")
    clock.go(HOUR + 1)
    slow = FaultyStore(store)
    stall = Stall(method="append")
    slow.plan.append(stall)
    sweeping = asyncio.create_task(Sessions(slow, clock=clock).sweep_stale())
    await stall.reached.wait()
    touched = [await sessions.touch(id) for id in ("a", "b")]
    stall.go.set()
    swept = await sweeping
    assert (swept.suspended, swept.skipped) == ([], {"in use again": 2})
    assert [await row(sessions, id) for id in ("a", "b")] == touched


async def test_of_two_sweepers_each_session_is_suspended_by_one(store: Store, clock: Clock) -> None:
    sessions = Sessions(store, clock=clock)
    made = [f"s{n}" for n in range(10)]
    await active(sessions, *made)
    clock.go(HOUR + 1)
    swept = await asyncio.gather(*(sessions.sweep_stale() for _ in range(3)))
    assert sorted(id for answer in swept for id in answer.suspended) == made
    for id in made:
        assert (await kinds(sessions, id)).count("session.suspended") == 1


@parity(TABLE, 45)
async def test_a_session_that_nobody_touched_ages_too(sessions: Sessions, clock: Clock) -> None:
    await sessions.create("a", user="ann")
    clock.go(HOUR + 1)
    assert (await sessions.sweep_stale()).suspended == ["a"]
    assert (await sessions.touch("a")).phase == "active"


@parity(TABLE, 46)
async def test_a_second_time_to_live_ends_what_stays_suspended(store: Store, clock: Clock) -> None:
    plain, ending = Sessions(store, clock=clock), Sessions(store, clock=clock, expiry=600)
    await active(plain, "kept")  # it is off by default
    await active(ending, "ends", "back")
    clock.go(HOUR + 1)
    assert sorted((await ending.sweep_stale()).suspended) == ["back", "ends", "kept"]
    clock.go(600)
    assert (await ending.sweep_stale()).expired == []  # no older than that
    await ending.touch("back")
    at = clock.go(1)
    swept = await plain.sweep_stale()
    assert (swept.suspended, swept.expired) == ([], ["ends"])
    over = await row(plain, "ends")
    assert (over.phase, over.changed) == ("expired", at)
    assert (await log(plain, "ends"))[-1].json() == {"reason": "expiry"}
    clock.go(1000 * HOUR)
    assert (await plain.sweep_stale()).expired == []
    assert (await row(plain, "kept")).phase == "suspended"


@parity(TABLE, 48)
async def test_times_that_mean_nothing_are_refused(sessions: Sessions, store: Store) -> None:
    await active(sessions, "a")
    for wrong in (0, -1, 1.5, True, "60", 10**12):
        with pytest.raises(InvalidValue, match="ttl"):
            await sessions.sweep_stale(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="ttl"):
            await sessions.set_ttl("a", wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="ttl"):
            Sessions(store, ttl=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="expiry"):
            Sessions(store, expiry=wrong)  # type: ignore[arg-type]
    for limit in (0, -1):
        with pytest.raises(InvalidValue, match="limit"):
            await sessions.sweep_stale(limit=limit)
    assert (await row(sessions, "a")).phase == "active"


async def test_a_dry_run_changes_nothing(sessions: Sessions, clock: Clock) -> None:
    await active(sessions, "a")
    clock.go(HOUR + 1)
    before = await row(sessions, "a")
    assert (await sessions.sweep_stale(dry_run=True)).suspended == ["a"]
    assert await row(sessions, "a") == before


# What is going on keeps a session


@pytest.mark.parametrize("thread", ["main", "side"])
async def test_an_approval_that_waits_through_ten_ttls_is_still_answerable(
    sessions: Sessions, clock: Clock, thread: str
) -> None:
    await active(sessions, "a")
    waiting = {"id": "p1", "what": "approval", "title": "Pay?"}
    if thread != "main":
        await say(sessions.store, "a", "thread.created", thread=thread)
    await say(sessions.store, "a", "pending.opened", waiting, thread)
    for _ in range(10):
        clock.go(HOUR + 1)
        for ttl in (None, HOUR):
            assert (await sessions.sweep_stale(ttl)).suspended == []
    seen = await row(sessions, "a")
    assert (seen.phase, seen.changed) == ("active", (await log(sessions, "a"))[1].at)
    answer = {"id": "p1", "outcome": "approved"}
    await say(sessions.store, "a", "pending.settled", answer, thread, id="settle:p1")
    answered = await sessions.store.row(key("a", thread))
    assert answered is not None
    assert (answered.pending, answered.due) == ({}, clock.ms)
    assert (await sessions.sweep_stale()).suspended == []  # it has work to do
    await say(sessions.store, "a", "run.finished", {"status": "done"}, thread)
    clock.go(HOUR + 1)
    assert (await sessions.sweep_stale()).suspended == ["a"]


@pytest.mark.parametrize("thread", ["main", "side"])
@pytest.mark.parametrize(
    ("kind", "payload", "why"),
    [
        ("message.received", {"text": "go on"}, "has work to do"),
        ("run.started", {}, "has an open run"),
        ("run.waiting", {"due": 99_000_000_000_000}, "has an open run"),
        ("run.finished", {"due": 99_000_000_000_000}, "has work to do"),
        ("pending.opened", {"id": "q", "what": "question"}, "waits for an answer"),
    ],
)
async def test_a_session_with_something_going_on_is_not_swept(
    sessions: Sessions, clock: Clock, kind: str, payload: dict[str, object], why: str, thread: str
) -> None:
    await active(sessions, "a")
    await say(sessions.store, "a", kind, payload, thread)
    clock.go(3 * HOUR)
    swept = await sessions.sweep_stale()
    assert swept.suspended == []
    forced = await sessions.sweep_stale(10)
    assert (forced.suspended, forced.skipped) == ([], {why: 1})


async def test_a_session_in_use_in_another_thread_is_not_swept(
    sessions: Sessions, clock: Clock
) -> None:
    await sessions.create("a", user="ann", expiry=HOUR)
    clock.go(HOUR)
    await say(sessions.store, "a", "note.made", {"n": 1}, "side")
    clock.go(HOUR)
    for ttl in (None, HOUR):
        swept = await sessions.sweep_stale(ttl)
        assert (swept.suspended, swept.skipped) == ([], {"was in use lately": 1})
    clock.go(1)
    assert (await sessions.sweep_stale()).suspended == ["a"]
    await say(sessions.store, "a", "note.made", {"n": 2}, "side")
    clock.go(1)
    await say(sessions.store, "a", "note.made", {"n": 3}, "side")
    clock.go(HOUR)
    assert (await sessions.sweep_stale()).expired == []
    clock.go(1)
    assert (await sessions.sweep_stale()).expired == ["a"]


async def test_a_pinned_session_is_not_swept(sessions: Sessions, clock: Clock) -> None:
    await active(sessions, "a")
    pinned = await sessions.pin("a", reason="mine")
    assert await sessions.pin("a") == pinned
    clock.go(10 * HOUR)
    assert (await sessions.sweep_stale()).suspended == []
    assert (await sessions.sweep_stale(5)).skipped == {"pinned": 1}
    await sessions.pin("a", False)
    assert (await sessions.sweep_stale()).suspended == ["a"]


async def test_a_session_that_moved_away_is_not_swept(sessions: Sessions, clock: Clock) -> None:
    await active(sessions, "a")
    await seal(sessions.store, key("a"))
    clock.go(10 * HOUR)
    assert (await sessions.sweep_stale()).suspended == []
    assert (await sessions.sweep_stale(5)).suspended == []


async def test_a_message_and_an_answer_revive_a_suspended_session(
    sessions: Sessions, clock: Clock
) -> None:
    await active(sessions, "a", "b")
    await say(sessions.store, "b", "pending.opened", {"id": "p", "what": "plan"})
    for id in ("a", "b"):
        await sessions.suspend(id)
    at = clock.go(60)
    await sessions.store.append(
        key("a"), [NewEvent.of("message.received", MessageReceived(text="I am back"))]
    )
    await say(sessions.store, "b", "pending.settled", {"id": "p", "outcome": "approved"})
    for id in ("a", "b"):
        seen = await row(sessions, id)
        assert (seen.phase, seen.changed, seen.active) == ("active", at, clock.s)


# The task


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a state of the store."""
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110 - another task brings it about
            await asyncio.sleep(0.002)


async def test_a_sweeper_sweeps_now_and_then_and_ends(sessions: Sessions, clock: Clock) -> None:
    await active(sessions, "a")

    async def suspended() -> bool:
        return (await row(sessions, "a")).phase == "suspended"

    clock.go(HOUR + 1)
    async with Sweeper(sessions, every=0.01) as sweeper:
        sweeper.start()  # it has
        await until(suspended)
        await sessions.touch("a")
        clock.go(HOUR + 1)
        await until(suspended)
    await sweeper.aclose()  # twice is once
    await sessions.touch("a")
    clock.go(HOUR + 1)
    assert (await row(sessions, "a")).phase == "active"
    assert not [task for task in asyncio.all_tasks() if "Sweeper" in repr(task)]


@pytest.mark.parametrize("error", [StoreUnavailable(problem="away"), RuntimeError("a bug")])
@pytest.mark.parametrize("method", ["find", "append"])
async def test_a_sweeper_survives_a_store_that_fails(
    store: Store, clock: Clock, caplog: pytest.LogCaptureFixture, method: str, error: Exception
) -> None:
    sessions = Sessions(store, clock=clock)
    await active(sessions, "a")
    clock.go(HOUR + 1)
    faulty = FaultyStore(store, [Fail(method=method, call=n, error=error) for n in (1, 2)])

    async def suspended() -> bool:
        return (await row(sessions, "a")).phase == "suspended"

    async with Sweeper(Sessions(faulty, clock=clock), every=0.01):
        await until(suspended)
    failed = [record for record in caplog.records if "will be retried" in record.getMessage()]
    assert len(failed) == 2


async def test_a_sweeper_that_is_closed_in_the_middle_leaves_no_half(
    store: Store, clock: Clock
) -> None:
    sessions = Sessions(store, clock=clock)
    await active(sessions, "a", "b")
    clock.go(HOUR + 1)
    slow = FaultyStore(store)
    stall = Stall(method="append", call=2)
    slow.plan.append(stall)
    async with Sweeper(Sessions(slow, clock=clock), every=60):
        await stall.reached.wait()
    phases = sorted([(await row(sessions, id)).phase for id in ("a", "b")])
    assert phases == ["active", "suspended"]
    assert len((await sessions.sweep_stale()).suspended) == 1
