"""Tests for the guarantees of a store about leases that are acquired or released together with an
append.
"""

from __future__ import annotations

import asyncio

import pytest

from ..errors import HeadMoved, InvalidValue, LeaseHeld, LeaseLost, SessionMoved
from ..log.events import Appended
from ..stores.port import Acquire, Lease, Store
from .samples import (
    KEY,
    PATIENCE,
    begin,
    begin_driven,
    ids,
    note,
    notes,
    rejected,
    seal,
    seqs,
)

ME = Acquire("me", 60)


def held(done: Appended) -> Lease:
    """Return the lease that an append acquired."""
    assert done.lease is not None
    return done.lease


class LeaseContract:
    """Tests for the guarantees of a store about appends that change a lease: the append and the
    change succeed or fail together.
    """

    pytestmark = pytest.mark.asyncio

    # Acquiring with an append

    async def test_an_append_takes_the_lease(self, store: Store) -> None:
        await begin(store)
        done = await store.append(KEY, [note(2), note(3)], expected=1, acquire=ME)
        lease = held(done)
        assert (done.seqs, done.head, done.fresh) == ((2, 3), 3, 2)
        assert (lease.key, lease.owner, lease.ttl) == (KEY, "me", 60_000)
        assert lease.until == lease.since + 60_000
        await rejected(LeaseHeld, store.acquire(KEY, "other"))
        assert (await store.append(KEY, [note(4)], fence=lease)).head == 4
        await store.release(await store.renew(lease), head=4)
        assert (await store.acquire(KEY, "other")).token > lease.token

    async def test_the_holder_of_the_lease_is_told(self, store: Store) -> None:
        assert await store.holder(KEY) is None
        await begin(store)
        assert await store.holder(KEY) is None
        lease = await store.acquire(KEY, "me", ttl=60)
        found = await store.holder(KEY)
        assert found is not None
        assert (found.owner, found.since) == ("me", lease.since)
        assert 0 < found.until - found.since <= 60_000
        await store.release(lease)
        assert await store.holder(KEY) is None
        await store.acquire(KEY, "me", ttl=0.01)
        async with asyncio.timeout(PATIENCE):
            while await store.holder(KEY) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def test_an_append_that_begins_a_log_takes_the_lease(self, store: Store) -> None:
        done = await store.append(KEY, [note(1)], create=True, acquire=ME)
        assert (await store.append(KEY, [note(2)], fence=held(done))).head == 2

    async def test_under_a_live_lease_nothing_is_written(self, store: Store) -> None:
        lease = await begin_driven(store, "first")
        for owner in ("second", "first"):
            refused = await rejected(
                LeaseHeld, store.append(KEY, [note(2)], acquire=Acquire(owner, 60))
            )
            assert (refused.owner, refused.since) == ("first", lease.since)
        assert await seqs(store) == [1]
        assert (await store.append(KEY, [note(3)], fence=lease)).seqs == (2,)

    async def test_a_lapsed_or_released_lease_does_not_prevent_it(self, store: Store) -> None:
        old = await begin_driven(store, "first")
        await store.release(old)
        lease = held(await store.append(KEY, [note(2)], acquire=ME))
        assert lease.token > old.token
        await rejected(LeaseLost, store.append(KEY, [note(3)], fence=old))

    async def test_a_refused_append_takes_no_lease(self, store: Store) -> None:
        await begin(store)
        await rejected(HeadMoved, store.append(KEY, [note(2)], expected=7, acquire=ME))
        await store.release(await store.acquire(KEY, "other"))
        await seal(store, to="there")
        await rejected(SessionMoved, store.append(KEY, [note(2)], acquire=ME))

    async def test_the_lease_is_checked_before_the_head(self, store: Store) -> None:
        await begin_driven(store, "first")
        await rejected(LeaseHeld, store.append(KEY, [note(2)], expected=7, acquire=ME))

    async def test_of_many_who_append_for_the_lease_one_gets_it(self, store: Store) -> None:
        await begin(store)
        asking = [
            store.append(KEY, [note(f"by {n}")], acquire=Acquire(f"owner-{n}", 60))
            for n in range(20)
        ]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        kinds = sorted(type(answer).__name__ for answer in answers)
        assert kinds == ["Appended"] + 19 * ["LeaseHeld"]
        assert await seqs(store) == [1, 2]

    async def test_a_repeated_append_gets_the_lease_that_it_took(self, store: Store) -> None:
        await begin(store)
        events = [note(2), note(3)]
        lease = held(await store.append(KEY, events, expected=1, acquire=ME))
        again = await store.append(KEY, events, expected=1, acquire=ME)
        assert (again.seqs, again.fresh) == ((2, 3), 0)
        assert held(again) == lease
        assert (await store.append(KEY, [note(4)], fence=held(again))).head == 4

    async def test_a_renewed_lease_is_still_that_of_the_append(self, store: Store) -> None:
        await begin(store)
        renewed = await store.renew(held(await store.append(KEY, [note(2)], acquire=ME)))
        assert held(await store.append(KEY, [note(2)], acquire=ME)).until == renewed.until

    @pytest.mark.parametrize("how", ["released", "taken over", "taken again", "by another append"])
    async def test_a_repeated_append_gets_no_lease_that_is_gone(
        self, store: Store, how: str
    ) -> None:
        await begin(store)
        lease = held(await store.append(KEY, [note(2)], acquire=ME))
        if how == "taken over":
            await store.acquire(KEY, "thief", steal="it hangs")
        else:
            await store.release(lease)
        if how == "taken again":
            await store.acquire(KEY, "me", ttl=60, mark="another")
        elif how == "by another append":
            await store.append(KEY, [note(3)], acquire=ME)
        again = await store.append(KEY, [note(2)], acquire=ME)
        assert (again.seqs, again.lease) == ((2,), None)

    async def test_with_some_ids_known_nothing_is_written_and_no_lease_taken(
        self, store: Store
    ) -> None:
        await begin(store, count=2)
        done = await store.append(KEY, [note(2), note(3)], acquire=ME)
        assert done == Appended((2, 0), 2, 0)
        assert await ids(store) == notes(1, 2)
        await store.acquire(KEY, "other")

    async def test_events_that_others_wrote_bring_no_lease(self, store: Store) -> None:
        await begin(store, count=2)
        assert await store.append(KEY, [note(2)], acquire=ME) == Appended((2,), 2, 0)

    # Releasing with an append

    async def test_an_append_gives_the_lease_back(self, store: Store) -> None:
        lease = await begin_driven(store)
        done = await store.append(KEY, [note(2)], expected=1, release=lease)
        assert done == Appended((2,), 2, 1)
        await rejected(LeaseLost, store.append(KEY, [note(3)], fence=lease))
        await store.release(lease)
        assert (await store.acquire(KEY, "other")).token > lease.token

    async def test_a_refused_append_keeps_the_lease(self, store: Store) -> None:
        lease = await begin_driven(store)
        await store.append(KEY, [note("from the side")])
        await rejected(HeadMoved, store.append(KEY, [note(3)], expected=1, release=lease))
        assert (await store.append(KEY, [note(3)], fence=lease, expected=2)).head == 3

    async def test_a_lease_that_is_gone_cannot_be_given_back(self, store: Store) -> None:
        lease = await begin_driven(store)
        await store.acquire(KEY, "thief", steal="it hangs")
        await rejected(LeaseLost, store.append(KEY, [note(2)], release=lease))
        assert await seqs(store) == [1]

    async def test_a_repeated_release_succeeds(self, store: Store) -> None:
        lease = await begin_driven(store)
        for fresh in (1, 0):
            done = await store.append(KEY, [note(2)], expected=1, release=lease)
            assert done == Appended((2,), 2, fresh)

    async def test_known_events_do_not_give_the_lease_back(self, store: Store) -> None:
        lease = await begin_driven(store)
        await store.append(KEY, [note(2)], fence=lease)
        done = await store.append(KEY, [note(2)], release=lease)
        assert (done.seqs, done.lease) == ((2,), lease)
        assert (await store.append(KEY, [note(3)], fence=lease)).head == 3

    async def test_fence_acquire_and_release_exclude_each_other(self, store: Store) -> None:
        lease = await begin_driven(store)
        for options in (
            {"fence": lease, "acquire": ME},
            {"fence": lease, "release": lease},
            {"acquire": ME, "release": lease},
        ):
            await rejected(InvalidValue, store.append(KEY, [note(2)], **options))
        for bad in (Acquire("", 60), Acquire("me", 0), Acquire("me", 90_000)):
            await rejected(InvalidValue, store.append(KEY, [note(2)], acquire=bad))

    # Marks

    async def test_a_repeated_acquire_gets_the_lease_that_it_took(self, store: Store) -> None:
        await begin(store)
        lease = await store.acquire(KEY, "me", ttl=60, mark="try 1")
        again = await store.acquire(KEY, "me", ttl=60, mark="try 1")
        assert (again.token, again.until) == (lease.token, lease.until)
        assert (await store.append(KEY, [note(2)], fence=again)).head == 2

    async def test_another_attempt_or_owner_gets_no_lease(self, store: Store) -> None:
        await begin(store)
        await store.acquire(KEY, "me", mark="try 1")
        for owner, mark in (("me", "try 2"), ("other", "try 1"), ("me", None)):
            await rejected(LeaseHeld, store.acquire(KEY, owner, mark=mark))

    async def test_a_mark_ends_with_its_lease(self, store: Store) -> None:
        await begin(store)
        lease = await store.acquire(KEY, "me", mark="try 1")
        await store.release(lease)
        newer = await store.acquire(KEY, "me", mark="try 1")
        assert newer.token > lease.token
        await store.acquire(KEY, "thief", steal="it hangs")
        await rejected(LeaseHeld, store.acquire(KEY, "me", mark="try 1"))
