"""Tests for the guarantees of a store about lookups of events and logs, and about conditional
deletion.
"""

from __future__ import annotations

import pytest

from ..errors import HeadMoved, InvalidValue, LogReplaced, SessionNotFound
from ..log.codec import LIMITS
from ..log.events import Scope, key
from ..stores.port import Store
from .samples import (
    KEY,
    SIDE,
    begin,
    begin_driven,
    fork_side,
    note,
    notes,
    read_all,
    rejected,
    row_of,
    snapshot,
)


class LookupContract:
    """Tests for the guarantees of a store about lookups: events are found by id, rows by key, and
    erased events are counted.
    """

    pytestmark = pytest.mark.asyncio

    # Event ids

    async def test_the_numbers_of_ids_are_found(self, store: Store) -> None:
        log = await begin(store, count=3)
        found = await store.seqs(KEY, [*notes(3, 1), "unknown"], log=log)
        assert found == {"note-3": 3, "note-1": 1}
        assert await store.seqs(KEY, []) == {}

    async def test_a_fork_knows_the_ids_that_it_shares(self, store: Store) -> None:
        await begin(store, count=3)
        await fork_side(store, at=2)
        assert await store.seqs(SIDE, notes(1, 2, 3)) == {"note-1": 1, "note-2": 2}
        await store.delete(KEY)
        assert await store.seqs(SIDE, notes(1, 2)) == {"note-1": 1, "note-2": 2}

    async def test_ids_are_looked_up_in_a_log_that_exists(self, store: Store) -> None:
        await rejected(SessionNotFound, store.seqs(KEY, ["x"]))
        await begin(store)
        await rejected(LogReplaced, store.seqs(KEY, ["x"], log="another"))
        many = [f"id-{n}" for n in range(LIMITS.append_events + 1)]
        for ids in (many, [""], ["x" * 513]):
            await rejected(InvalidValue, store.seqs(KEY, ids))
        assert await store.seqs(KEY, many[1:]) == {}

    async def test_an_event_is_located_in_the_logs_to_which_it_was_appended(
        self, store: Store
    ) -> None:
        await begin(store, count=3)
        await store.append(key("t"), [note(2), note("x")], create=True)
        await store.append(key("t", tenant="other"), [note(2)], create=True)
        await fork_side(store, at=2)
        assert await store.locate("main", "note-2") == [KEY, key("t")]
        assert await store.locate("main", "note-3") == [KEY]
        assert await store.locate("main", "note-x") == [key("t")]
        assert await store.locate("other", "note-2") == [key("t", tenant="other")]
        assert await store.locate("main", "unknown") == []
        assert await store.locate("nobody", "note-2") == []

    async def test_an_event_of_a_deleted_log_is_located_in_its_forks(self, store: Store) -> None:
        await begin(store, count=3)
        await fork_side(store, at=2)
        await store.delete(KEY)
        assert await store.locate("main", "note-1") == [SIDE]
        assert await store.locate("main", "note-3") == []

    # Rows

    async def test_the_rows_of_several_logs_come_in_order(self, store: Store) -> None:
        await begin(store, count=2)
        await begin(store, key("t", tenant="other"))
        wanted = [key("t", tenant="other"), key("none"), KEY, KEY]
        rows = await store.rows(wanted)
        assert rows == [await store.row(one) for one in wanted]
        assert [row and row.head for row in rows] == [1, None, 2, 2]
        assert await store.rows([]) == []
        await rejected(InvalidValue, store.rows([KEY] * (LIMITS.page + 1)))

    async def test_erasure_is_counted_in_the_row(self, store: Store) -> None:
        await begin(store, count=4)
        assert (await row_of(store)).erased == 0
        await store.erase(KEY, [2, 3], reason="asked")
        await store.append(KEY, [note(5)])
        assert (await row_of(store)).erased == 2
        await store.erase(KEY, [3, 4], reason="asked")
        assert (await row_of(store)).erased == 3
        assert [damage async for damage in store.verify()] == []

    # Guarded deletion

    @pytest.mark.parametrize("target", [KEY, KEY.scope])
    async def test_a_delete_from_a_stale_head_deletes_nothing(
        self, store: Store, target: Scope
    ) -> None:
        await begin(store, count=2)
        refused = await rejected(HeadMoved, store.delete(target, expected=1))
        assert (refused.expected, refused.head) == (1, 2)
        assert len(await read_all(store)) == 2
        await store.delete(target, expected=2)
        assert await store.row(KEY) is None

    async def test_what_does_not_exist_has_the_head_zero(self, store: Store) -> None:
        await store.delete(KEY, expected=0)
        await store.delete(KEY.scope, expected=0)
        await rejected(HeadMoved, store.delete(KEY, expected=3))

    # Snapshots without a lease

    async def test_a_snapshot_without_a_lease_replaces_only_one_that_is_not_as_far(
        self, store: Store
    ) -> None:
        lease = await begin_driven(store)
        log = lease.log
        await store.append(KEY, [note(2), note(3)])
        await store.save_snapshot(KEY, snapshot(log, 1))
        await store.save_snapshot(KEY, snapshot(log, 2))
        await store.save_snapshot(KEY, snapshot(log, 1))
        assert (await kept(store)) == 2
        await store.save_snapshot(KEY, snapshot(log, 1), fence=lease)
        assert (await kept(store)) == 1
        await store.save_snapshot(KEY, snapshot(log, 3))
        assert (await kept(store)) == 3


async def kept(store: Store) -> int | None:
    """Return the number of the last event in the stored snapshot, or None without a snapshot."""
    found = await store.load_snapshot(KEY, "v1")
    return None if found is None else found.seq
