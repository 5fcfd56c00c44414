"""Tests for the guarantees of a store, one test per guarantee. This module tests append, read,
follow and leases.

`history_contract` has fork, restore, erase and delete; `records_contract` drafts, blobs and
snapshots; `catalog_contract` rows, lists and claims; `hostile_contract` unusual values, races and
tenants. `StoreContract` combines them. No test depends on the kind of store or sets its clock;
where time matters, a test waits for the state.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from ..errors import (
    HeadMoved,
    HoldfastError,
    InvalidValue,
    LeaseHeld,
    LeaseLost,
    LogReplaced,
    SessionMoved,
    SessionNotFound,
)
from ..log.codec import LIMITS
from ..log.events import Appended, Event, NewEvent
from ..stores.port import Store
from ..values.stream_items import CaughtUp
from .catalog_contract import CatalogContract
from .history_contract import HistoryContract
from .hostile_contract import HostileContract
from .lease_contract import LeaseContract
from .lookup_contract import LookupContract
from .records_contract import RecordsContract
from .samples import (
    KEY,
    SIDE,
    Numbering,
    after_the_lapse,
    begin,
    begin_driven,
    contents,
    damage_in,
    given,
    ids,
    lapse,
    note,
    notes,
    past,
    plant,
    read_all,
    rejected,
    row_of,
    seal,
    seqs,
    snapshot,
    take,
)


class StoreContract(
    HistoryContract,
    RecordsContract,
    CatalogContract,
    LeaseContract,
    LookupContract,
    HostileContract,
):
    """All tests for the guarantees of a store. Subclass this class and provide a `store` fixture:
    an open store, empty for each test. Needs pytest-asyncio, in any mode.

    See [writing a store](../writing-a-store.md) and [simulation](../simulation.md).
    """

    # Appending

    async def test_an_append_numbers_its_events_densely_from_one(self, store: Store) -> None:
        assert await store.append(KEY, [note(1), note(2)], create=True) == Appended((1, 2), 2, 2)
        assert await store.append(KEY, [note(3)]) == Appended((3,), 3, 1)
        assert (await seqs(store), await ids(store)) == ([1, 2, 3], notes(1, 2, 3))

    async def test_an_event_comes_back_whole(self, store: Store) -> None:
        new = note(1, v=7, run="r", actor="ann", cause="c")
        await store.append(KEY, [new, note(2)], create=True)
        (got, plain) = await read_all(store)
        assert (got.kind, got.id, got.data) == (new.kind, new.id, new.data)
        assert (got.v, got.run, got.actor, got.cause) == (7, "r", "ann", "c")
        assert (plain.v, plain.run, plain.actor, plain.cause) == (1, None, None, None)
        assert got.at == plain.at > 1_700_000_000_000

    async def test_what_is_kept_of_an_event_may_depend_on_its_number(self, store: Store) -> None:
        await store.append(KEY, [note(1)], create=True)
        known, new = note(1), [Numbering.of("note.made", {}, id=id) for id in ("a", "b")]
        await store.append(KEY, [known, *new])
        await store.fork(KEY, "side", at=2, first=Numbering.of("note.made", {}, id="c"))
        assert await contents(store) == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert (await read_all(store, SIDE))[-1].json() == {"n": 3}
        assert await damage_in(store) == []

    async def test_only_create_begins_a_log(self, store: Store) -> None:
        await rejected(SessionNotFound, store.append(KEY, [note(1)]))
        await rejected(
            SessionNotFound,
            store.append(KEY, [note(1)], create=True, log="an incarnation that went"),
        )
        assert await store.row(KEY) is None

    async def test_a_refused_first_append_begins_nothing(self, store: Store) -> None:
        await rejected(HeadMoved, store.append(KEY, [note(1)], create=True, expected=3))
        assert await store.row(KEY) is None

    async def test_create_extends_a_log_that_is_there(self, store: Store) -> None:
        await begin(store)
        assert (await store.append(KEY, [note(2)], create=True)).head == 2

    async def test_an_append_from_a_stale_head_writes_nothing(self, store: Store) -> None:
        await begin(store, count=3)
        refused = await rejected(HeadMoved, store.append(KEY, [note(4)], expected=2))
        assert (refused.expected, refused.head) == (2, 3)
        assert (await store.append(KEY, [note(5)], expected=3)).seqs == (4,)

    async def test_a_known_id_is_not_written_again_and_reports_its_number(
        self, store: Store
    ) -> None:
        await begin(store, count=2)
        assert await store.append(KEY, [note(2), note(1)]) == Appended((2, 1), 2, 0)
        assert await seqs(store) == [1, 2]

    async def test_of_a_partly_known_batch_the_rest_is_appended(self, store: Store) -> None:
        await begin(store, count=2)
        assert await store.append(KEY, [note(3), note(1), note(4)]) == Appended((3, 1, 4), 4, 2)
        assert await ids(store) == notes(1, 2, 3, 4)

    async def test_a_partly_known_batch_meets_the_same_guards(self, store: Store) -> None:
        await begin(store, count=2)
        await rejected(HeadMoved, store.append(KEY, [note(1), note(3)], expected=1))
        assert await seqs(store) == [1, 2]

    async def test_an_id_twice_in_one_batch_is_one_event(self, store: Store) -> None:
        twice = [note(1), note("other", id="note-1"), note(2)]
        assert await store.append(KEY, twice, create=True) == Appended((1, 1, 2), 2, 2)

    async def test_an_id_means_its_first_content(self, store: Store) -> None:
        await begin(store)
        await store.append(KEY, [note("other", id="note-1"), note("more", id="note-1")])
        assert await contents(store) == [{"n": 1}]

    async def test_a_batch_with_one_bad_event_is_refused_whole(self, store: Store) -> None:
        await begin(store)
        await rejected(InvalidValue, store.append(KEY, [note(2), note(3, id=""), note(4)]))
        assert await seqs(store) == [1]

    async def test_limits_are_checked_before_the_log_is_looked_for(self, store: Store) -> None:
        for events in ([], [note(n) for n in range(LIMITS.append_events + 1)], [note(1, id="")]):
            await rejected(InvalidValue, store.append(KEY, events))

    async def test_the_incarnation_is_checked_before_known_ids(self, store: Store) -> None:
        log = await begin(store)
        assert (await store.append(KEY, [note(1)], log=log)).fresh == 0
        refused = await rejected(LogReplaced, store.append(KEY, [note(1)], log="another"))
        assert (refused.known, refused.log) == ("another", log)

    async def test_a_retry_of_known_events_succeeds_whatever_happened_since(
        self, store: Store
    ) -> None:
        old = await begin_driven(store, "first")
        await store.append(KEY, [note(2)], fence=old, expected=1)
        await store.release(old)
        await seal(store)
        assert await store.append(KEY, [note(2)], fence=old, expected=1) == Appended((2,), 3, 0)

    async def test_a_seal_is_checked_before_the_fence(self, store: Store) -> None:
        old = await begin_driven(store, "first")
        await store.release(old)
        await seal(store, to="there")
        refused = await rejected(SessionMoved, store.append(KEY, [note(2)], fence=old, expected=0))
        assert refused.to == "there"

    async def test_the_fence_is_checked_before_the_head(self, store: Store) -> None:
        old = await begin_driven(store, "first")
        await store.release(old)
        await rejected(LeaseLost, store.append(KEY, [note(2)], fence=old, expected=0))
        assert await seqs(store) == [1]

    async def test_a_sealed_log_takes_no_unknown_ids(self, store: Store) -> None:
        await begin(store)
        lease = await seal(store)
        for fence in (None, lease):
            await rejected(SessionMoved, store.append(KEY, [note(1), note(2)], fence=fence))
        await rejected(SessionMoved, store.fork(KEY, "side", at=1, first=note("fork")))
        assert (await store.append(KEY, [note(1)])).seqs == (1,)
        assert (await seqs(store), await store.row(SIDE)) == ([1, 2], None)

    async def test_a_fenced_reopening_unseals(self, store: Store) -> None:
        await begin(store)
        lease = await seal(store)
        reopened = NewEvent.of("session.reopened", {"reason": "the move failed"})
        await rejected(SessionMoved, store.append(KEY, [reopened]))
        await store.append(KEY, [reopened], fence=lease)
        assert (await store.append(KEY, [note(2)])).head == 4

    # Reading and following

    @pytest.mark.parametrize(
        ("bounds", "expected"),
        [
            ({}, [1, 2, 3, 4, 5]),
            ({"after": 2}, [3, 4, 5]),
            ({"before": 3}, [1, 2]),
            ({"after": 1, "before": 4}, [2, 3]),
            ({"limit": 2}, [1, 2]),
            ({"after": 1, "limit": 2}, [2, 3]),
            ({"reverse": True}, [5, 4, 3, 2, 1]),
            ({"reverse": True, "limit": 2}, [5, 4]),
            ({"reverse": True, "before": 4, "after": 1}, [3, 2]),
            ({"after": 5}, []),
            ({"after": 99}, []),
            ({"before": 1}, []),
            ({"before": 99, "limit": 99}, [1, 2, 3, 4, 5]),
            ({"after": 3, "before": 3}, []),
        ],
    )
    async def test_a_read_gives_the_events_between_its_bounds(
        self, store: Store, bounds: dict[str, Any], expected: list[int]
    ) -> None:
        await begin(store, count=5)
        assert await seqs(store, **bounds) == expected
        await store.fork(KEY, "side", at=3, first=note("x"))
        await store.append(SIDE, [note("y")])
        assert await seqs(store, SIDE, **bounds) == expected

    async def test_bounds_that_are_no_numbers_of_events_are_refused(self, store: Store) -> None:
        await begin(store)
        wrong: list[dict[str, Any]] = [{"after": -1}, {"before": -1}, {"limit": 0}, {"limit": -5}]
        for bounds in wrong:
            await rejected(InvalidValue, read_all(store, **bounds))

    async def test_a_read_goes_past_any_page_of_the_backend(self, store: Store) -> None:
        for start in range(0, 6000, 1000):
            batch = [note(n) for n in range(start, start + 1000)]
            await store.append(KEY, batch, create=True)
        assert await seqs(store) == list(range(1, 6001))
        assert await seqs(store, reverse=True, limit=5500) == list(range(6000, 500, -1))

    async def test_order_comes_from_the_numbers_alone(self, store: Store) -> None:
        clocks = [(n * 7919) % 1000 for n in range(1, 1001)]
        await store.restore(KEY, given([past(n, at=clocks[n - 1]) for n in range(1, 1001)]))
        await store.append(KEY, [note(n) for n in range(1000)])
        assert await seqs(store) == list(range(1, 2001))
        assert [event.at for event in await read_all(store, limit=1000)] == clocks
        assert await ids(store, after=1000) == notes(*range(1000))
        assert len({event.at for event in await read_all(store, after=1000)}) == 1

    async def test_a_read_of_another_incarnation_is_refused(self, store: Store) -> None:
        log = await begin(store)
        assert await seqs(store, log=log) == [1]
        await rejected(LogReplaced, read_all(store, log="another"))

    async def test_large_payloads_come_whole_or_as_size_and_hash(self, store: Store) -> None:
        large, small = note("x" * store.info().apart, id="large"), note("small")
        await store.append(KEY, [large, small], create=True)
        assert [e.data for e in await read_all(store)] == [large.data, small.data]
        apart, inline = await read_all(store, inline=False)
        assert apart.json()["apart"]["size"] == len(large.data)
        assert len(apart.json()["apart"]["sha256"]) == 64
        assert (apart.id, inline.data) == ("large", small.data)

    async def test_a_follower_gets_history_then_one_mark_then_what_comes(
        self, store: Store
    ) -> None:
        log = await begin(store, count=3)
        async with aclosing(store.follow(KEY, after=1, log=log)) as following:
            history = await take(following, 3)
            await store.append(KEY, [note(4), note(5)])
            live = await take(following, 2)
            await store.append(KEY, [note(5), note(6)])
            live += await take(following, 1)
        assert [getattr(item, "seq", item) for item in history] == [2, 3, CaughtUp(log, 3)]
        assert [getattr(item, "seq", item) for item in live] == [4, 5, 6]

    async def test_a_follower_of_a_quiet_log_is_caught_up_at_once(self, store: Store) -> None:
        log = await begin(store, count=2)
        async with aclosing(store.follow(KEY, after=2)) as following:
            assert await take(following, 1) == [CaughtUp(log, 2)]

    async def test_followers_see_each_event_of_all_writers_once(self, store: Store) -> None:
        await begin(store)

        async def write(name: str) -> None:
            for n in range(10):
                await store.append(KEY, [note(f"{name}{n}")])

        async with aclosing(store.follow(KEY)) as one, aclosing(store.follow(KEY)) as other:
            seen, again, *_ = await asyncio.gather(
                take(one, 22), take(other, 22), write("a"), write("b")
            )
        for items in (seen, again):
            assert [e.seq for e in items if isinstance(e, Event)] == list(range(1, 22))

    async def test_what_a_follower_is_told_is_what_is_read(self, store: Store) -> None:
        await begin(store)
        text = "x" * (store.info().apart + 1)
        large = NewEvent.of("note.made", text, id="large", actor="a", cause="c", run="r", v=3)
        async with aclosing(store.follow(KEY, after=1)) as following:
            await take(following, 1)
            for n in range(5):
                await store.append(KEY, [note(f"x{n}"), large, note(f"y{n}")])
            head = (await row_of(store)).head
            assert await take(following, head - 1) == await read_all(store, after=1)

    async def test_an_append_whose_caller_went_away_is_followed(self, store: Store) -> None:
        await begin(store)
        async with aclosing(store.follow(KEY, after=1)) as following:
            await take(following, 1)
            for n in range(10):
                left = asyncio.create_task(store.append(KEY, [note(f"left {n}")]))
                for _ in range(n // 2):
                    await asyncio.sleep(0)
                left.cancel()
                await asyncio.wait([left])
            await store.append(KEY, [note("last")])
            head = (await row_of(store)).head
            assert await take(following, head - 1) == await read_all(store, after=1)

    async def test_a_follower_ends_when_the_log_goes(self, store: Store) -> None:
        await begin(store)
        async with aclosing(store.follow(KEY)) as following:
            await take(following, 2)
            await store.delete(KEY.scope)
            await rejected(SessionNotFound, take(following, 1))

    async def test_a_follower_ends_when_the_store_is_closed(self, store: Store) -> None:
        await begin(store)
        async with aclosing(store.follow(KEY)) as following:
            await take(following, 2)
            waiting = asyncio.create_task(take(following, 1))
            await asyncio.sleep(0)
            await store.aclose()
            await rejected(HoldfastError, waiting)

    async def test_a_follower_never_takes_a_new_log_for_the_old(self, store: Store) -> None:
        old = await begin(store)
        async with aclosing(store.follow(KEY)) as following:
            await take(following, 2)
            await store.delete(KEY)
            assert await begin(store, count=5) != old
            await rejected(LogReplaced, take(following, 1))
        await rejected(LogReplaced, take(store.follow(KEY, log=old), 1))

    # Leases and fences

    async def test_a_held_lease_names_its_holder(self, store: Store) -> None:
        await begin(store)
        lease = await store.acquire(KEY, "first", ttl=60)
        assert (lease.key, lease.owner, lease.until) == (KEY, "first", lease.since + 60_000)
        for owner in ("second", "first"):
            refused = await rejected(LeaseHeld, store.acquire(KEY, owner))
            assert (refused.owner, refused.since) == ("first", lease.since)
            assert 0 < refused.left <= 60_000

    async def test_of_many_who_want_a_lease_one_gets_it(self, store: Store) -> None:
        await begin(store)
        asking = [store.acquire(KEY, f"owner-{n}") for n in range(20)]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["Lease"] + 19 * ["LeaseHeld"]

    async def test_tokens_rise_with_every_lease(self, store: Store) -> None:
        await begin(store)
        tokens = []
        for _ in range(5):
            lease = await store.acquire(KEY, "driver")
            tokens.append(lease.token)
            await store.release(lease)
        tokens.append((await store.acquire(KEY, "driver")).token)
        tokens.append((await store.acquire(KEY, "thief", steal="the driver hangs")).token)
        assert tokens == sorted(set(tokens))

    async def test_a_lapsed_lease_writes_and_renews_until_somebody_takes_over(
        self, store: Store
    ) -> None:
        await plant(store, KEY, ("session.created", {"agent": "a"}), ("run.started", {}))
        lapsed = await store.acquire(KEY, "first", ttl=0.001)
        await lapse(store, KEY, "a")
        assert (await store.append(KEY, [note(3)], fence=lapsed)).head == 3
        renewed = await store.renew(lapsed)
        assert (renewed.token, renewed.owner) == (lapsed.token, "first")
        assert renewed.until > lapsed.until
        newer = await after_the_lapse(store, KEY, "second")
        refused = await rejected(LeaseLost, store.append(KEY, [note(4)], fence=renewed))
        assert (refused.token, refused.newest) == (lapsed.token, newer.token)
        assert refused.owner == "second"

    async def test_a_renewed_lease_is_held_on(self, store: Store) -> None:
        await begin(store)
        lease = await store.renew(await store.acquire(KEY, "first", ttl=60))
        await rejected(LeaseHeld, store.acquire(KEY, "second"))
        assert (await store.append(KEY, [note(2)], fence=lease)).head == 2

    @pytest.mark.parametrize("how", ["released", "taken over", "of a log that grew again"])
    async def test_a_lease_that_is_gone_is_refused_by_every_fenced_method(
        self, store: Store, how: str
    ) -> None:
        log = await begin(store)
        lease = await store.acquire(KEY, "first")
        if how == "released":
            await store.release(lease)
        elif how == "taken over":
            await store.acquire(KEY, "second", steal="the first hangs")
        else:
            await store.delete(KEY)
            log = await begin(store)
            await store.acquire(KEY, "second")
        fenced = [
            store.append(KEY, [note(2)], fence=lease),
            store.erase(KEY, [1], reason="asked", fence=lease),
            store.delete(KEY, fence=lease),
            store.renew(lease),
            store.put_draft(KEY, "m", 0, "text", fence=lease),
            store.save_snapshot(KEY, snapshot(log, 1), fence=lease),
        ]
        for answer in await asyncio.gather(*fenced, return_exceptions=True):
            assert isinstance(answer, LeaseLost)
        if how != "released":
            await rejected(LeaseLost, store.release(lease))
        assert await contents(store) == [{"n": 1}]
        assert (await store.drafts(KEY), await store.load_snapshot(KEY, "v1")) == ([], None)

    async def test_a_lease_of_one_log_fences_no_other(self, store: Store) -> None:
        await begin(store)
        await begin(store, SIDE)
        lease, _ = await store.acquire(KEY, "driver"), await store.acquire(SIDE, "driver")
        await rejected(LeaseLost, store.append(SIDE, [note(2)], fence=lease))

    async def test_a_release_frees_the_lease_and_can_be_repeated(self, store: Store) -> None:
        lease = await begin_driven(store, "first")
        await store.release(lease, head=1)
        await store.release(lease)
        assert (await store.acquire(KEY, "second")).token > lease.token

    async def test_a_release_that_missed_an_event_is_refused_and_keeps_the_lease(
        self, store: Store
    ) -> None:
        lease = await begin_driven(store, "first")
        await store.append(KEY, [note("from the side")])
        refused = await rejected(HeadMoved, store.release(lease, head=1))
        assert refused.head == 2
        await store.append(KEY, [note(3)], fence=lease, expected=2)
        await store.release(lease, head=3)

    async def test_side_writers_need_no_lease(self, store: Store) -> None:
        lease = await begin_driven(store)
        for n in range(2, 12, 2):
            await store.append(KEY, [note(n)])
            await store.append(KEY, [note(n + 1)], fence=lease)
        assert await ids(store) == notes(*range(1, 12))
