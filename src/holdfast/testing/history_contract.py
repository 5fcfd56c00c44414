"""Tests for the guarantees of a store about whole logs: fork, restore, erase and delete."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
import pytest

from ..errors import (
    BlobNotFound,
    InvalidValue,
    LogReplaced,
    SessionExists,
    SessionMoved,
    SessionNotFound,
)
from ..log.catalog import Parent, PendingQuery, Query
from ..log.events import Appended, Event, NewEvent, Scope, key
from ..stores.port import Store
from .samples import (
    KEY,
    SIDE,
    accepted,
    begin,
    begin_driven,
    contents,
    damage_in,
    fork_side,
    given,
    ids,
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
    uses,
)


class HistoryContract:
    """Tests for the guarantees of a store about whole logs: a log is shared, copied, erased or
    deleted without affecting other logs.
    """

    pytestmark = pytest.mark.asyncio

    # Links

    async def test_the_newest_link_is_in_the_row_and_none_ever_changes(self, store: Store) -> None:
        await begin(store, count=3)
        links = [await store.link(KEY, seq) for seq in (1, 2, 3)]
        assert len({*links}) == 3
        assert links[-1] == (await row_of(store)).link
        await store.append(KEY, [note(4)])
        await store.erase(KEY, [2, 4], reason="wanted")
        assert [await store.link(KEY, seq) for seq in (1, 2, 3)] == links
        assert await store.link(KEY, 4) == (await row_of(store)).link
        assert await damage_in(store) == []

    async def test_a_fork_has_the_links_of_what_it_shares(self, store: Store) -> None:
        await begin(store, count=3)
        await fork_side(store, at=2)
        assert await store.link(SIDE, 2) == await store.link(KEY, 2)
        assert await store.link(SIDE, 3) != await store.link(KEY, 3)
        assert await store.link(SIDE, 3) == (await row_of(store, SIDE)).link
        await store.delete(KEY)
        assert await store.link(SIDE, 1) is not None
        assert await damage_in(store) == []

    async def test_two_logs_that_say_the_same_have_no_link_in_common(self, store: Store) -> None:
        await begin(store, count=1)
        link = await store.link(KEY, 1)
        await store.delete(KEY)
        await begin(store, count=1)
        assert await store.link(KEY, 1) != link

    async def test_the_link_of_what_there_is_not_is_refused(self, store: Store) -> None:
        await begin(store, count=2)
        refused = await rejected(InvalidValue, store.link(KEY, 3))
        assert refused.field == "seq"
        await rejected(LogReplaced, store.link(KEY, 1, log="another"))
        await rejected(SessionNotFound, store.link(SIDE, 1))

    # Forks and restores

    async def test_a_thread_is_not_taken_for_a_fork_of_nothing(self, store: Store) -> None:
        await store.append(KEY, [NewEvent.of("note.made", id="a")], create=True)
        await rejected(
            SessionExists, store.fork(KEY, KEY.thread, at=0, first=NewEvent.of("note.made", id="a"))
        )

    async def test_a_fork_shares_its_past_and_goes_its_own_way(self, store: Store) -> None:
        await begin(store, count=3)
        await fork_side(store, at=2)
        await store.append(KEY, [note(4)])
        await store.append(SIDE, [note("on")])
        assert await ids(store) == notes(1, 2, 3, 4)
        assert await ids(store, SIDE) == notes(1, 2, "fork", "on")
        assert await read_all(store, limit=2) == await read_all(store, SIDE, limit=2)
        assert (await row_of(store, SIDE)).log != (await row_of(store)).log

    async def test_a_fork_is_read_whole_however_large_its_events_are(self, store: Store) -> None:
        large = "x" * (1 << 20)
        past = [note(large if n % 2 else n, id=f"e{n}") for n in range(5)]
        await store.append(KEY, past, create=True)
        await fork_side(store, at=5)
        await store.append(SIDE, [note(large, id="large"), note(8)])
        assert await seqs(store, SIDE) == list(range(1, 9))
        assert [e.seq for e in await read_all(store, SIDE, reverse=True)] == list(range(8, 0, -1))
        assert [e.seq for e in await read_all(store, SIDE, after=1, limit=5)] == [2, 3, 4, 5, 6]

    async def test_a_fork_outlives_its_parent_and_what_grows_there(self, store: Store) -> None:
        await begin(store, count=3)
        await fork_side(store, at=2)
        before = await read_all(store, SIDE)
        await store.delete(KEY)
        assert await read_all(store, SIDE) == before
        await store.append(KEY, [note("new"), note("newer"), note("newest")], create=True)
        assert await read_all(store, SIDE) == before
        assert (await store.append(SIDE, [note(1), note("on")])).seqs == (1, 4)

    async def test_a_fork_of_a_fork_shares_both_pasts(self, store: Store) -> None:
        await begin(store, count=3)
        await fork_side(store, at=2)
        await store.append(SIDE, [note("a"), note("b")])
        await store.fork(SIDE, "late", at=4, first=note("late"))
        await store.fork(SIDE, "early", at=1, first=note("early"))
        await store.delete(SIDE)
        assert await ids(store, key("s", "late")) == notes(1, 2, "fork", "a", "late")
        assert await ids(store, key("s", "early")) == notes(1, "early")
        assert await store.append(key("s", "early"), [note(1), note(2)]) == Appended((1, 3), 3, 1)

    async def test_a_fork_knows_the_ids_it_shares_and_no_later_ones(self, store: Store) -> None:
        await begin(store, count=3)
        await fork_side(store, at=2)
        assert await store.append(SIDE, [note(2), note(3)]) == Appended((2, 4), 4, 1)
        assert await store.append(KEY, [note("fork")]) == Appended((4,), 4, 1)

    async def test_a_repeated_fork_is_one_and_another_there_is_refused(self, store: Store) -> None:
        await begin(store, count=3)
        await fork_side(store, at=2)
        log = (await row_of(store, SIDE)).log
        await fork_side(store, at=2)
        assert (await row_of(store, SIDE)).log == log
        for thread, at, first in (("side", 2, "x"), ("side", 1, "fork"), ("main", 2, "fork")):
            await rejected(SessionExists, store.fork(KEY, thread, at=at, first=note(first)))
        assert await seqs(store, SIDE) == [1, 2, 3]

    async def test_a_fork_needs_a_point_of_the_log_and_a_new_id(self, store: Store) -> None:
        await begin(store, count=2)
        for at, first in ((0, "fork"), (3, "fork"), (2, 1)):
            await rejected(InvalidValue, store.fork(KEY, "side", at=at, first=note(first)))
        assert await store.row(SIDE) is None

    async def test_the_row_of_a_fork_shows_only_what_follows(self, store: Store) -> None:
        await plant(
            store, KEY, ("message.received", {"text": "hi"}), ("label.added", {"label": "x"})
        )
        first = NewEvent.of("thread.forked", {"parent": "main", "at": 2, "title": "again"})
        await store.fork(KEY, "side", at=2, first=first)
        row = await row_of(store, SIDE)
        assert (row.head, row.title, row.parent) == (3, "again", Parent("main", 2))
        assert (row.first_message, row.labels, row.counts) == (None, {}, {})
        assert (row.bytes, row.last) == (len(first.data), (await read_all(store, SIDE))[-1].at)

    async def test_a_restore_keeps_numbers_ids_and_times(self, store: Store) -> None:
        await begin(store, count=3)
        copy = key("copy")
        events = [past(1, at=5), past(2, "message.received", {"text": "hi"}, at=4_000)]
        await store.restore(copy, given(events))
        assert await read_all(store, copy) == events
        row = await row_of(store, copy)
        assert (row.first_message, row.created, row.last, row.active) == ("hi", 5, 4_000, 4)
        assert (await store.append(copy, [note(3)])).seqs == (3,)

    async def test_a_log_is_copied_by_reading_and_restoring_it(self, store: Store) -> None:
        await begin(store, count=1000)
        await store.restore(key("copy"), store.read(KEY))
        assert await read_all(store, key("copy")) == await read_all(store)

    async def test_a_restore_shows_nothing_and_holds_up_nobody_until_its_end(
        self, store: Store
    ) -> None:
        async def watched() -> AsyncGenerator[Event, None]:
            for n in range(1, 4):
                assert await store.row(KEY) is None
                assert (await store.find(Query(session="s"))).items == []
                await rejected(SessionNotFound, read_all(store))
                await store.append(key("other"), [note(n)], create=True)
                yield past(n)

        await store.restore(KEY, watched())
        assert (await seqs(store), await seqs(store, key("other"))) == ([1, 2, 3], [1, 2, 3])

    async def test_a_cut_restore_leaves_nothing_and_can_be_repeated(self, store: Store) -> None:
        async def cut() -> AsyncGenerator[Event, None]:
            yield past(1)
            yield past(2)
            raise ConnectionError

        await rejected(ConnectionError, store.restore(KEY, cut()))
        assert await store.row(KEY) is None
        await store.restore(KEY, given([past(1), past(2), past(3)]))
        assert await seqs(store) == [1, 2, 3]

    async def test_a_restore_over_a_log_is_refused(self, store: Store) -> None:
        await begin(store)
        await rejected(SessionExists, store.restore(KEY, given([past(1)])))
        assert await ids(store) == notes(1)

    async def test_a_restore_needs_every_event_once_in_order(self, store: Store) -> None:
        same_id = msgspec.structs.replace(past(2), id=past(1).id)
        for events in (
            [],
            [past(2)],
            [past(1), past(3)],
            [past(2), past(1)],
            [past(1), past(1)],
            [past(1), same_id],
        ):
            await rejected(InvalidValue, store.restore(KEY, given(events)))
            assert await store.row(KEY) is None

    async def test_a_restored_thread_shares_with_its_parent(self, store: Store) -> None:
        await begin(store, count=3)
        await store.restore(SIDE, given([past(3), past(4)]), parent=Parent("main", 2))
        assert await ids(store, SIDE) == [*notes(1, 2), "past-3", "past-4"]
        assert (await store.append(SIDE, [note(1)])).seqs == (1,)
        for at, first in ((2, 4), (9, 10)):
            await rejected(
                InvalidValue,
                store.restore(key("s", "gap"), given([past(first)]), parent=Parent("main", at)),
            )
        await rejected(
            SessionNotFound,
            store.restore(key("t", "x"), given([past(3)]), parent=Parent("main", 2)),
        )

    # Erasing and deleting

    async def test_an_erased_event_keeps_its_place_and_loses_its_data(self, store: Store) -> None:
        await begin(store, count=3)
        before = await read_all(store)
        await store.erase(KEY, [2], reason="asked")
        after = await read_all(store)
        assert after[1].json() == {"erased": "asked"}
        assert [(e.seq, e.id, e.kind, e.at) for e in after] == [
            (e.seq, e.id, e.kind, e.at) for e in before
        ]
        assert (after[0], after[2]) == (before[0], before[2])
        assert (await store.append(KEY, [note(2)])).seqs == (2,)
        assert await damage_in(store, KEY) == []

    async def test_an_erased_event_is_erased_in_every_fork(self, store: Store) -> None:
        await begin(store, count=2)
        await fork_side(store, at=2)
        await store.erase(SIDE, [1], reason="in the fork")
        await store.erase(KEY, [2], reason="in the parent")
        for log in (KEY, SIDE):
            texts = await contents(store, log, limit=2)
            assert texts == [{"erased": "in the fork"}, {"erased": "in the parent"}]

    async def test_an_erase_clears_the_row_and_the_snapshots(self, store: Store) -> None:
        await store.append(
            KEY, [NewEvent.of("message.received", {"text": "secret"}), note(2)], create=True
        )
        await fork_side(store, at=1)
        for log in (KEY, SIDE):
            lease, row = await store.acquire(log, "driver"), await row_of(store, log)
            await store.save_snapshot(log, snapshot(row.log, 2, '"secret"'), fence=lease)
        await store.erase(KEY, [1], reason="asked")
        row = await row_of(store)
        assert "secret" not in str(row)
        assert row.bytes == sum(len(e.data) for e in await read_all(store))
        assert [await store.load_snapshot(log, "v1") for log in (KEY, SIDE)] == [None, None]

    async def test_an_erase_takes_back_no_decision(self, store: Store) -> None:
        opened = ("pending.opened", {"id": "p", "what": "approval"})
        settled = NewEvent.of("pending.settled", {"id": "p", "outcome": "denied"}, id="settle:p")
        await plant(store, KEY, opened)
        await store.append(KEY, [settled])
        await seal(store)
        await store.erase(KEY, [2, 3], reason="asked")
        assert (await row_of(store)).pending == {}
        await rejected(SessionMoved, store.append(KEY, [note(4)]))

    async def test_only_events_of_the_log_can_be_erased(self, store: Store) -> None:
        await begin(store, count=2)
        for wrong in ([0], [1, 3]):
            await rejected(InvalidValue, store.erase(KEY, wrong, reason="asked"))
        assert await contents(store) == [{"n": 1}, {"n": 2}]

    async def test_a_rewind_cannot_be_erased(self, store: Store) -> None:
        await begin(store, count=2)
        rewound = {"to": 1, "window": {}, "messages": 0}
        await store.append(KEY, [NewEvent.of("thread.rewound", rewound), note(4)])
        await fork_side(store, at=4)
        for log in (KEY, SIDE):
            error = await rejected(InvalidValue, store.erase(log, [2, 3], reason="asked"))
            assert error.field == "seqs"
        assert (await contents(store))[:2] == [{"n": 1}, {"n": 2}]
        await store.erase(KEY, [1, 2, 4], reason="asked")
        assert [e.json() for e in await read_all(store)][2] == rewound

    async def test_a_deleted_session_is_hidden_from_every_method(self, store: Store) -> None:
        pending = ("pending.opened", {"id": "p", "what": "approval"})
        await plant(store, KEY, ("session.created", {"agent": "a"}), ("run.started", {}), pending)
        await fork_side(store, at=1)
        ref = await store.put_blob(KEY.scope, b"bytes")
        await store.claim("main", "name", KEY.scope)
        assert await store.runnable("main", agents=["a"]) == [KEY]
        lease = await store.acquire(KEY, "driver")
        receipt = await store.delete(KEY.scope)
        assert (receipt.removed["logs"], receipt.removed["blobs"]) == (2, 1)
        assert await accepted(uses(store, KEY, lease), SessionNotFound) == []
        await rejected(BlobNotFound, store.get_blob(KEY.scope, ref))
        assert (await store.row(KEY), await store.row(SIDE)) == (None, None)
        assert (await store.find(Query(session="s"))).items == []
        assert (await store.pending(PendingQuery())).items == []
        assert await store.runnable("main", agents=["a"]) == []
        assert await store.claim("main", "name", Scope("main", "heir")) == Scope("main", "heir")

    async def test_a_delete_can_be_repeated(self, store: Store) -> None:
        for target in (KEY.scope, KEY):
            await begin(store)
            assert any((await store.delete(target)).removed.values())
            assert not any((await store.delete(target)).removed.values())
        assert await store.row(KEY) is None

    async def test_deleting_what_is_not_there_removes_nothing(self, store: Store) -> None:
        await store.claim("main", "name", KEY.scope)
        assert not any((await store.delete(KEY)).removed.values())
        assert await store.claim("main", "name", Scope("main", "x")) == KEY.scope

    async def test_deleting_a_thread_leaves_the_others_and_what_the_session_owns(
        self, store: Store
    ) -> None:
        await begin(store, count=2)
        await begin(store, SIDE)
        ref = await store.put_blob(KEY.scope, b"bytes")
        await store.claim("main", "name", KEY.scope)
        await store.delete(SIDE)
        assert (await seqs(store), await store.row(SIDE)) == ([1, 2], None)
        assert await store.get_blob(KEY.scope, ref) == b"bytes"
        assert await store.claim("main", "name", Scope("main", "x")) == KEY.scope

    async def test_nothing_late_recreates_a_deleted_session(self, store: Store) -> None:
        lease = await begin_driven(store)
        await store.delete(KEY.scope)
        for fence in (None, lease):
            await rejected(SessionNotFound, store.append(KEY, [note(1), note(2)], fence=fence))
        assert await store.row(KEY) is None

    async def test_a_session_grown_again_is_another_one(self, store: Store) -> None:
        old = await begin(store, count=3)
        lease = await store.acquire(KEY, "driver")
        await store.save_snapshot(KEY, snapshot(old, 3), fence=lease)
        await store.put_draft(KEY, "m", 0, "text", fence=lease)
        ref = await store.put_blob(KEY.scope, b"bytes")
        await store.delete(KEY.scope)
        assert await begin(store) != old
        assert await ids(store) == notes(1)
        assert (await store.load_snapshot(KEY, "v1"), await store.drafts(KEY)) == (None, [])
        await rejected(BlobNotFound, store.get_blob(KEY.scope, ref))
        await rejected(LogReplaced, store.append(KEY, [note(2)], log=old))
        assert (await store.acquire(KEY, "driver")).log != old

    async def test_a_fenced_delete_goes_through_under_the_newest_lease(self, store: Store) -> None:
        lease = await begin_driven(store)
        await rejected(InvalidValue, store.delete(KEY.scope, fence=lease))
        await store.delete(KEY, fence=lease)
        assert await store.row(KEY) is None
