"""Nothing is deleted unless a policy says so, and then in the open: row 47, UD-51 and UD-54."""

from __future__ import annotations

import pytest

from holdfast import DeletionRefused, InvalidValue, Retention, Sessions, Store, Sweeper
from holdfast.testing.faults import Fail, FaultyStore

from .scene import HOUR, WEB, Clock, ids, row, say
from .test_sweep import until

parity = pytest.mark.parity
TABLE = "agent-assistant-sessions"
DAY = 24 * HOUR
POLICY = Retention(keep=30 * DAY, grace=7 * DAY)


async def ended(sessions: Sessions, *names: str) -> None:
    for id in names:
        await sessions.create(id, user="ann")
        await sessions.expire(id)


@parity(TABLE, 47)
@parity("user-demand", 42, 51)
async def test_what_expired_is_deleted_after_its_time_and_not_before(
    sessions: Sessions, clock: Clock
) -> None:
    await sessions.create("a", user="ann", surface=WEB, metadata={"x": 1})
    clock.go(DAY)
    await sessions.expire("a")  # quiet: it was last active a day ago
    clock.go(29 * DAY)
    assert (await sessions.purge_expired(POLICY)).deleted == []  # as old as it may get
    clock.go(1)
    dry = await sessions.purge_expired(POLICY, dry_run=True)
    assert (dry.dry_run, dry.deleted, dry.removed) == (True, ["a"], {})
    assert await sessions.get("a") is not None
    done = await sessions.purge_expired(POLICY)
    assert (done.dry_run, done.deleted, done.in_grace, done.kept) == (False, ["a"], {}, {})
    # The last event tells that it is to be deleted.
    assert (done.removed["logs"], done.removed["events"], done.removed["claims"]) == (1, 4, 1)
    assert await sessions.get("a") is None
    assert (await sessions.find()).items == []
    assert (await sessions.purge_expired(POLICY)).deleted == []


async def test_nothing_that_is_not_expired_is_deleted(sessions: Sessions, clock: Clock) -> None:
    for id in ("created", "active", "suspended"):
        await sessions.create(id, user="ann")
    await sessions.touch("active")
    await sessions.suspend("suspended")
    clock.go(1000 * DAY)
    assert (await sessions.purge_expired(Retention(keep=0, grace=0))).deleted == []
    await sessions.sweep_stale()
    assert (await sessions.find(total=True)).total == 3


@parity("user-demand", 51)
async def test_in_its_grace_period_a_session_can_be_reopened(
    sessions: Sessions, clock: Clock
) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    await sessions.create("b", user="ann")
    clock.go(40 * DAY)
    at = clock.ms
    for id in ("a", "b"):
        await sessions.expire(id)
    clock.go(7 * DAY - 1)
    report = await sessions.purge_expired(POLICY)
    until_then = at + 7 * DAY * 1000
    assert (report.deleted, report.in_grace) == ([], {"a": until_then, "b": until_then})
    back = await sessions.reopen("a", reason="needed")
    assert (back.phase, len(back.surfaces)) == ("active", 1)
    clock.go(1)
    assert (await sessions.purge_expired(POLICY)).deleted == ["b"]
    assert (await row(sessions, "a")).phase == "active"


@parity("user-demand", 51)
async def test_what_is_pinned_held_or_waits_for_a_person_is_kept_and_told(
    sessions: Sessions, clock: Clock
) -> None:
    for id in ("pinned", "held", "waits", "side", "goes"):
        await sessions.create(id, user="ann")
    await sessions.pin("pinned")
    await sessions.hold("held", "case 17")
    await say(sessions.store, "waits", "pending.opened", {"id": "p", "what": "approval"})
    await say(sessions.store, "side", "pending.opened", {"id": "p", "what": "plan"}, "side")
    for id in ("pinned", "held", "waits", "side", "goes"):
        await sessions.expire(id)
    clock.go(100 * DAY)
    for dry_run in (True, False):
        report = await sessions.purge_expired(POLICY, dry_run=dry_run)
        assert report.deleted == ["goes"]
        assert report.kept == {
            "pinned": "pinned",
            "held": "held: case 17",
            "waits": "waits for an answer",
            "side": "waits for an answer",
        }
    await sessions.hold("held", None)
    await sessions.pin("pinned", False)
    assert sorted((await sessions.purge_expired(POLICY)).deleted) == ["held", "pinned"]


async def test_what_was_in_use_in_another_thread_is_kept(sessions: Sessions, clock: Clock) -> None:
    await ended(sessions, "a")
    clock.go(20 * DAY)
    await say(sessions.store, "a", "note.made", {"n": 1}, "side")
    clock.go(30 * DAY)
    assert (await sessions.purge_expired(POLICY)).kept == {"a": "was in use lately"}
    clock.go(1)
    assert (await sessions.purge_expired(POLICY)).deleted == ["a"]


@pytest.mark.parity("user-demand", 54)
async def test_a_hold_refuses_deletion_with_its_reason(sessions: Sessions, clock: Clock) -> None:
    await sessions.create("a", user="ann")
    held = await sessions.hold("a", "case 17", actor="legal")
    assert held.hold == "case 17"
    assert await sessions.hold("a", "case 17") == held
    with pytest.raises(DeletionRefused) as caught:
        await sessions.delete("a")
    assert (caught.value.session, caught.value.reason) == ("a", "held: case 17")
    assert (await sessions.touch("a")).phase == "active"  # it may go on
    await say(sessions.store, "a", "note.made", {"n": 1}, "side")
    with pytest.raises(DeletionRefused):
        await sessions.delete("a", "side")
    await sessions.hold("a", None)
    assert (await sessions.delete("a", "side")).removed["logs"] == 1
    assert await sessions.get("a") is not None
    assert (await sessions.delete("a")).removed["logs"] == 1
    assert await sessions.get("a") is None
    assert sum((await sessions.delete("a")).removed.values()) == 0  # nothing is there


async def test_a_purge_goes_on_in_batches(store: Store, clock: Clock) -> None:
    sessions = Sessions(store, clock=clock)
    await ended(sessions, *(f"s{n}" for n in range(7)))
    clock.go(100 * DAY)
    sizes = [len((await sessions.purge_expired(POLICY, limit=3)).deleted) for _ in range(4)]
    assert sizes == [3, 3, 1, 0]
    for wrong in (Retention(keep=-1), Retention(keep=1, grace=-1)):
        with pytest.raises(InvalidValue):
            await sessions.purge_expired(wrong)
    with pytest.raises(InvalidValue, match="limit"):
        await sessions.purge_expired(POLICY, limit=0)


async def test_a_purge_that_failed_in_the_middle_is_finished_by_the_next(
    store: Store, clock: Clock
) -> None:
    sessions = Sessions(FaultyStore(store, [Fail(method="delete", call=2)]), clock=clock)
    await ended(sessions, "a", "b", "c")
    clock.go(100 * DAY)
    with pytest.raises(Exception, match="planned"):
        await sessions.purge_expired(POLICY)
    assert len((await sessions.purge_expired(POLICY)).deleted) == 2
    assert (await sessions.find()).items == []


async def test_a_session_reopened_during_the_purge_stays(store: Store, clock: Clock) -> None:
    """It was found as expired, and reopened before its turn."""
    sessions = Sessions(store, clock=clock)
    await ended(sessions, "a", "b")
    clock.go(100 * DAY)

    class Reopening(FaultyStore):
        async def delete(self, *arguments, **named):  # type: ignore[no-untyped-def]
            for id in ids((await sessions.find(phases="expired")).items):
                if id != arguments[0].session:
                    await sessions.reopen(id)
            return await super().delete(*arguments, **named)

    report = await Sessions(Reopening(store), clock=clock).purge_expired(POLICY)
    assert len(report.deleted) == 1
    assert list(report.kept.values()) == ["changed meanwhile"]
    assert len((await sessions.find(phases="active")).items) == 1


async def test_a_sweeper_with_a_policy_deletes(sessions: Sessions, clock: Clock) -> None:
    await ended(sessions, "a")
    clock.go(100 * DAY)

    async def gone() -> bool:
        return await sessions.get("a") is None

    async with Sweeper(sessions, every=0.01, retention=POLICY):
        await until(gone)
    assert (await sessions.find(phases="expired")).items == []
